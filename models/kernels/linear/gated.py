"""Decaying sums of outer products: S_t = a_t S_{t-1} + beta_t k_t v_t^T, y_t = q_t S_t.

    M_ij = (q_i . k_j) beta_j a_{j+1} ... a_i        for j <= i

With a decay fixed per head this is retention (Sun et al. 2023, arXiv 2307.08621) and lightning attention (Qin et al. 2024, arXiv
2401.04658); with a = exp(dt A), beta = dt it is Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), whose C, B and x are q, k and v; with
one decay per key channel it is gated linear attention (Yang et al. 2023, arXiv 2312.06635).
"""

from __future__ import annotations

from collections.abc import Iterator

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
    in_chunks,
    initial_state,
    one_by_one,
    read,
)

__all__ = ["chunked", "implicit_matrix", "quadratic", "read", "recurrent", "states"]


def states(k: Keys, v: Values, log_decay: LogDecay, beta: Strength | None = None, state: State | None = None) -> Iterator[State]:
    """The state after each token."""
    state = initial_state(k, v, state)
    k, v, decay = heads_first(_written(k, beta)), heads_first(v), heads_first(log_decay).exp()
    for t in range(k.shape[2]):
        state = decay[:, :, t, :, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        yield state


def recurrent(
    q: Keys, k: Keys, v: Values, log_decay: LogDecay, beta: Strength | None = None, state: State | None = None
) -> tuple[Values, State]:
    """(y, state after the last token), one token after the other; state: what earlier tokens left."""
    return one_by_one(q, v, initial_state(k, v, state), states(k, v, log_decay, beta, state))


def chunked(
    q: Keys,
    k: Keys,
    v: Values,
    log_decay: LogDecay,
    beta: Strength | None = None,
    state: State | None = None,
    chunk: int | None = None,
) -> tuple[Values, State]:
    """As `recurrent`, in matrix products: work and memory grow linearly with the length."""
    tensors = [heads_first(x) for x in (q, _written(k, beta), v, log_decay)]
    y, state = in_chunks(_advance, tensors, initial_state(k, v, state), log_decay, chunk)
    return y.to(v.dtype), state


def quadratic(
    q: Keys, k: Keys, v: Values, log_decay: LogDecay, beta: Strength | None = None, state: State | None = None
) -> tuple[Values, State]:
    """As `recurrent`, through the matrix: y = M v, and what the queries read of an earlier state."""
    before = initial_state(k, v, state)
    q_, k_, v_, log_decay_ = (heads_first(x) for x in (q, _written(k, beta), v, log_decay))
    carried, _ = _advance(q_, k_, 0 * v_, log_decay_, before)
    _, after = _advance(q_, k_, v_, log_decay_, before)
    y = implicit_matrix(q, k, log_decay, beta) @ v_ + carried
    return y.transpose(1, 2).to(v.dtype), after


def implicit_matrix(q: Keys, k: Keys, log_decay: LogDecay, beta: Strength | None = None) -> Matrix:
    """M with y = M v when there is no earlier state: signed, 0 above the diagonal."""
    return decayed_products(heads_first(q), heads_first(_written(k, beta)), between(heads_first(log_decay)))


def _written(k: Keys, beta: Strength | None) -> Keys:
    return k if beta is None else k * beta[..., None]


def _advance(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: State) -> tuple[Tensor, State]:
    """One chunk, [batch, head, pos, ...]: (y, state after it)."""
    decay, from_start = between(log_decay), log_decay.cumsum(2).exp()
    y = decayed_products(q, k, decay) @ v + (q * from_start) @ state
    return y, from_start[:, :, -1, :, None] * state + (k * decay[:, :, -1]).mT @ v
