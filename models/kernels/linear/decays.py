"""Decays that are fixed per head, as logarithms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def retention_log_decay(n_heads: int) -> Float[Tensor, " head"]:
    """log(1 - 2^(-5 - h)) for h = 0 .. n_heads - 1 (Sun et al. 2023): later heads remember longer."""
    return torch.log1p(-(2.0 ** (-5 - torch.arange(n_heads, dtype=torch.float64))))


def lightning_log_decay(n_heads: int, layer: int, n_layers: int) -> Float[Tensor, " head"]:
    """-2^(-8 (h + 1) / n_heads), ALiBi's slopes, nearing 0 towards the last layer (MiniMax-01, arXiv 2501.08313)."""
    slopes = 2.0 ** (-8 * torch.arange(1, n_heads + 1, dtype=torch.float64) / n_heads)
    return -slopes * (1 - layer / (n_layers - 1 + 1e-5) + 1e-5)


FIXED_DECAYS: dict[str, Callable[[int, int, int], Tensor]] = {
    "none": lambda n_heads, layer, n_layers: torch.zeros(n_heads, dtype=torch.float64),
    "retention": lambda n_heads, layer, n_layers: retention_log_decay(n_heads),
    "lightning": lightning_log_decay,
}
"""By the name that `cfg.linear.decay` gives: functions of (n_heads, layer, n_layers)."""
