"""Sizes of latent attention."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .checks import check_types, positive


@dataclass(frozen=True)
class LatentConfig:
    """Sizes of latent attention (DeepSeek-AI 2024, arXiv 2405.04434)."""

    kv_rank: int
    """Width of the latent that keys and values are made of."""
    d_shared: int
    """Trailing dimensions of a head that bypass the latent: rotated, and in the key the same for all heads."""
    q_rank: int = 0
    """Width of the latent that queries are made of; 0 means they are made of the input itself."""
    norm_eps: float = 1e-6
    """Epsilon of the latents' own norms."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "latent.")
        for field in ("kv_rank", "d_shared", "norm_eps"):
            positive(f"latent.{field}", getattr(self, field))
        if self.q_rank < 0:
            raise ConfigError(f"latent.q_rank must be a whole number of 0 or more, got {self.q_rank}.")
