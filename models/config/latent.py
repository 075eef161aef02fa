"""Sizes of latent attention."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_types


@dataclass(frozen=True)
class LatentConfig:
    """Sizes of latent attention."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "latent.")
