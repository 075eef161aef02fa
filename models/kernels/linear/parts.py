"""What the linear rules share: axis order, decays in log space, and the walk over chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from ...norms import widened

Keys = Float[Tensor, "batch pos head d_key"]
"""Queries and keys alike."""
Values = Float[Tensor, "batch pos head d_value"]
LogDecay = Float[Tensor, "batch pos head #d_key"]
"""log of what a token multiplies the state by before it writes: one number per head, or one per key channel; at most 0."""
Strength = Float[Tensor, "batch pos head"]
"""beta: how strongly a token writes."""
State = Float[Tensor, "batch head d_key d_value"]
Matrix = Float[Tensor, "batch head query key"]

CHUNK, CHUNK_PER_CHANNEL = 64, 16
"""Tokens per chunk: within one, work is quadratic, times d_key where each key channel has a decay of its own."""

Advance = Callable[..., tuple[Tensor, Tensor]]


def heads_first(x: Float[Tensor, "batch pos head *dims"]) -> Float[Tensor, "batch head pos *dims"]:
    """Axes as matrix products want them, and at least float32: states gather rounding errors over a whole sequence."""
    return widened(x).transpose(1, 2)


def one_by_one(q: Keys, v: Values, first: State, states: Iterable[State]) -> tuple[Values, State]:
    """(y, the last state): each query reads the state after its own token; first: the state before all."""
    last, y = first, []
    for q_t, last in zip(heads_first(q).unbind(2), states, strict=True):
        y.append((q_t[..., None, :] @ last)[..., 0, :])
    return torch.stack(y, 1).to(v.dtype), last


def initial_state(k: Keys, v: Values, state: State | None) -> State:
    """The state before the first token: the one given, or zeros, at least in float32."""
    if state is not None:
        return widened(state)
    return widened(v).new_zeros(v.shape[0], v.shape[2], k.shape[-1], v.shape[-1])


def between(log_decay: Float[Tensor, "*axes pos channel"]) -> Float[Tensor, "*axes query key channel"]:
    """Decay from key j to query i, exp of the sum of log_decay over j < l <= i; 0 above the diagonal.

    Each key has a running sum of its own. The difference of two sums from the start, which is the same, is rounded to the size
    of those sums; and what lies above the diagonal is masked before exp, where it would overflow.
    """
    n = log_decay.shape[-2]
    grid = torch.ones(n, n, dtype=torch.bool, device=log_decay.device)
    sums = log_decay[..., :, None, :].masked_fill(~grid.tril(-1)[..., None], 0.0).cumsum(-3)
    return sums.masked_fill(~grid.tril()[..., None], float("-inf")).exp()


def decayed_products(
    x: Float[Tensor, "batch head query d_key"],
    k: Float[Tensor, "batch head key d_key"],
    decay: Float[Tensor, "batch head query key #d_key"],
) -> Matrix:
    """x_i . k_j after the decay from j to i, 0 above the diagonal; `decay` as `between` gives it."""
    if decay.shape[-1] == 1:
        return x @ k.mT * decay[..., 0]
    return torch.einsum("bhid,bhjd,bhijd->bhij", x, k, decay)


def in_chunks(
    advance: Advance, tensors: list[Tensor], state: State, log_decay: LogDecay, chunk: int | None
) -> tuple[Values, State]:
    """Hand `advance` one chunk of every tensor [batch, head, pos, ...] after the other, with the state so far."""
    if chunk is None:
        chunk = CHUNK if log_decay.shape[-1] == 1 else CHUNK_PER_CHANNEL
    if chunk < 1:
        raise ValueError(f"chunk must be a positive number of tokens, got {chunk}.")
    parts = []
    for pieces in zip(*(tensor.split(chunk, dim=2) for tensor in tensors), strict=True):
        y, state = advance(*pieces, state)
        parts.append(y)
    return torch.cat(parts, dim=2).transpose(1, 2), state


def identity_values(v_like: Keys) -> Float[Tensor, "batch pos head pos"]:
    """Values with which a mixer's output is its matrix: token j carries the j-th unit vector."""
    batch, n, heads = v_like.shape[:3]
    return torch.eye(n, dtype=v_like.dtype, device=v_like.device)[None, :, None].expand(batch, -1, heads, -1)


def read(q: Keys, states: Float[Tensor, "batch pos head d_key d_value"]) -> Values:
    """q_t S_t, each query of a state of its own."""
    return (widened(q)[..., None, :] @ widened(states))[..., 0, :]
