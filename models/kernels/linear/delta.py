"""Gated delta rule: a token first decays the state, then replaces what the state holds at its key.

    S_t = (I - beta_t k_t k_t^T) a_t S_{t-1} + beta_t k_t v_t^T,   y_t = q_t S_t
    M_ij = q_i^T [prod_{l = i .. j+1} (I - beta_l k_l k_l^T) a_l] k_j beta_j        for j <= i

With one decay a_t per head: gated delta networks (Yang et al. 2024, arXiv 2412.06464); with one per key channel: Kimi delta
attention (arXiv 2510.26692). Chunks use the form of Yang et al. 2024 (arXiv 2406.06484): what each token changes is u_t =
beta_t (v_t - k_t a_t S_{t-1}), and all u of a chunk solve one triangular system.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .parts import (
    Keys,
    LogDecay,
    Matrix,
    State,
    Strength,
    Values,
    between,
    decayed_products,
    heads_first,
    identity_values,
    in_chunks,
    initial_state,
    one_by_one,
    read,
)

__all__ = ["chunked", "implicit_matrix", "matrix_in_chunks", "quadratic", "read", "recurrent", "states"]


def states(k: Keys, v: Values, log_decay: LogDecay, beta: Strength, state: State | None = None) -> Iterator[State]:
    """The state after each token."""
    state = initial_state(k, v, state)
    k, v, decay, beta = (heads_first(x) for x in (k, v, log_decay.exp(), beta))
    for t in range(k.shape[2]):
        state = decay[:, :, t, :, None] * state
        held = k[:, :, t, None, :] @ state
        state = state + k[:, :, t, :, None] * (beta[:, :, t, None, None] * (v[:, :, t, None, :] - held))
        yield state


def recurrent(
    q: Keys, k: Keys, v: Values, log_decay: LogDecay, beta: Strength, state: State | None = None
) -> tuple[Values, State]:
    """(y, state after the last token), one token after the other; state: what earlier tokens left."""
    return one_by_one(q, v, initial_state(k, v, state), states(k, v, log_decay, beta, state))


def chunked(
    q: Keys, k: Keys, v: Values, log_decay: LogDecay, beta: Strength, state: State | None = None, chunk: int | None = None
) -> tuple[Values, State]:
    """As `recurrent`, in matrix products: work and memory grow linearly with the length."""
    tensors = [heads_first(x) for x in (q, k, v, log_decay, beta)]
    y, state = in_chunks(_advance, tensors, initial_state(k, v, state), log_decay, chunk)
    return y.to(v.dtype), state


def quadratic(
    q: Keys, k: Keys, v: Values, log_decay: LogDecay, beta: Strength, state: State | None = None
) -> tuple[Values, State]:
    """As `recurrent`, through the matrix: y = M v, and what the queries read of an earlier state."""
    before = initial_state(k, v, state)
    q_, k_, v_, log_decay_, beta_ = (heads_first(x) for x in (q, k, v, log_decay, beta))
    carried, _ = _advance(q_, k_, 0 * v_, log_decay_, beta_, before)
    _, after = _advance(q_, k_, v_, log_decay_, beta_, before)
    y = implicit_matrix(q, k, log_decay, beta) @ v_ + carried
    return y.transpose(1, 2).to(v.dtype), after


def implicit_matrix(q: Keys, k: Keys, log_decay: LogDecay, beta: Strength) -> Matrix:
    """M with y = M v when there is no earlier state: signed, 0 above the diagonal, no row sum."""
    q, k, log_decay, beta = (heads_first(x) for x in (q, k, log_decay, beta))
    decay = between(log_decay)
    return decayed_products(q, k, decay) @ _changes(k, decay, beta, torch.diag_embed(beta))


def matrix_in_chunks(q: Keys, k: Keys, log_decay: LogDecay, beta: Strength, *, chunk: int | None = None) -> Matrix:
    """As `implicit_matrix`, by running the rule on unit values: nothing of size query times key times d_key is ever held."""
    return chunked(q, k, identity_values(k), log_decay, beta, chunk=chunk)[0].transpose(1, 2)


def _changes(k: Tensor, decay: Tensor, beta: Tensor, wanted: Tensor) -> Tensor:
    """u of (I + strictly lower part of beta_i k_i . k_j decay_ij) u = wanted: each token's write less what it overwrites."""
    overlaps = beta[..., None] * decayed_products(k, k, decay)
    return torch.linalg.solve_triangular(overlaps, wanted, upper=False, unitriangular=True)


def _advance(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: State) -> tuple[Tensor, State]:
    """One chunk, [batch, head, pos, ...]: (y, state after it)."""
    decay, from_start = between(log_decay), log_decay.cumsum(2).exp()
    changes = _changes(k, decay, beta, beta[..., None] * (v - (k * from_start) @ state))
    y = decayed_products(q, k, decay) @ changes + (q * from_start) @ state
    return y, from_start[:, :, -1, :, None] * state + (k * decay[:, :, -1]).mT @ changes
