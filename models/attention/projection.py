"""Linear maps split by head, as every mixer makes its queries, keys and values."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


def project(
    x: Float[Tensor, "batch pos *head d_model"], linear: nn.Linear, n_heads: int
) -> Float[Tensor, "batch pos n_heads d_head"]:
    """Apply a projection and split it by head; an input that already differs by head meets only its own head's weights."""
    if x.dim() == 3:
        return linear(x).unflatten(-1, (n_heads, -1))
    out = torch.einsum("bphd,hde->bphe", x, by_head(linear.weight, n_heads))
    return out if linear.bias is None else out + linear.bias.view(n_heads, -1)


def by_head(weight: Float[Tensor, "head_times_d_head d_model"], n_heads: int) -> Float[Tensor, "head d_model d_head"]:
    """A projection's weight as one matrix per head, a view: x @ by_head(weight, n)[h] is head h's part."""
    return weight.unflatten(0, (n_heads, -1)).transpose(1, 2)
