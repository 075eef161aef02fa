"""Settings of ALiBi."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_types, positive


@dataclass(frozen=True)
class AlibiConfig:
    """Scores that fall with distance, at a slope per head (Press et al. 2022, arXiv 2108.12409)."""

    max_bias: float = 8.0
    """Of n heads, a power of two, the gentlest slope is 2^-max_bias and the steepest 2^(-max_bias / n)."""
    is_rounded: bool = False
    """Slopes and their products with positions are rounded to bfloat16, as Falcon's were in training."""
    is_scaled: bool = False
    """The bias is multiplied by `attn_scale`, as the dot products are."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "alibi.")
        positive("alibi.max_bias", self.max_bias)
