"""Settings of sparse masks and of selected attention."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .checks import check_types, one_of, positive
from .rotary import ROTARY_LAYOUTS


@dataclass(frozen=True)
class SparseConfig:
    """Settings of sparse masks and of selected attention."""

    block: int = 64
    """Tokens in a block, of a blockwise mask or of selected attention."""
    n_random: int = 0
    """Random blocks that each block of queries of a "big_bird" mask sees."""
    seed: int | None = None
    """Which random blocks: None makes all of them block 0, as BigBird does in evaluation; a number draws them, as in training."""
    n_global: int = 0
    """Leading tokens that are global under a "longformer" mask, where the call does not name the global tokens."""

    n_selected: int = 0
    """Keys, or blocks, that a query of selected attention chooses; with blocks its own counts."""
    window: int = 0
    """`native_sparse`: the last tokens that a query sees whatever it chooses, itself included."""
    index_heads: int = 0
    """`indexed_latent`: small heads that rank keys."""
    d_index: int = 0
    """Their width."""
    index_layout: str = "half"
    """Which of their dimensions form a pair in rotation, as in `rotary.layout`."""
    reuse: bool = False
    """`indexed_latent`: the layer has no indexer and sees what the last layer with one chose."""

    n_sinks: int = 0
    """Leading tokens that every query sees, whatever its window (mask "sink_window")."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "sparse.")
        positive("sparse.block", self.block)
        for field in ("n_random", "n_global", "n_sinks", "n_selected", "window", "index_heads", "d_index"):
            if (value := getattr(self, field)) < 0:
                raise ConfigError(f"sparse.{field} must be 0 or more, got {value}.")
        one_of("sparse.index_layout", self.index_layout, ROTARY_LAYOUTS)
