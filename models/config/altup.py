"""Settings of blocks that keep several streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .checks import check_types

if TYPE_CHECKING:
    from .transformer import TransformerConfig


@dataclass(frozen=True)
class AltUpConfig:
    """Streams side by side, one of which blocks compute on (AltUp, Baykal et al. 2023, arXiv 2301.13310), as in Gemma 3n.

    Its blocks also have a low-rank branch beside attention (LAuReL, Menghani et al. 2024, arXiv 2411.07501).
    """

    n_streams: int = 4
    active: int = 0
    """The stream that attention, MLP and the low-rank branch read and write."""
    scaled_read: bool = True
    """Whether the reading of a layer's token embedding sees the active stream times a learned gain."""
    laurel_rank: int = 64

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "altup.")
        for field, least in (("n_streams", 2), ("laurel_rank", 1)):
            if (value := getattr(self, field)) < least:
                raise ConfigError(f"altup.{field} must be at least {least}, got {value}.")
        if not 0 <= self.active < self.n_streams:
            raise ConfigError(f"altup.active must be one of the streams 0 to {self.n_streams - 1}, got {self.active}.")


def check_altup(cfg: TransformerConfig) -> None:
    """Raise ConfigError where streams and block order do not fit, or layers differ in their streams."""
    if (cfg.block == "altup") != (cfg.altup is not None):
        raise ConfigError(f"block='altup' and the field altup go together, got block={cfg.block!r} and altup={cfg.altup!r}.")
    kept = {changes.get("altup", cfg.altup) for changes in cfg.by_type.values()} | {cfg.altup}
    if len(kept) > 1:
        raise ConfigError("altup must be the same in all layers, which hand the streams on; by_type changes it.")
