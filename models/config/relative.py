"""Settings of relative positions that are added to scores."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .checks import check_types, one_of, positive


@dataclass(frozen=True)
class RelativeConfig:
    """Scores by the distance of query and key, in buckets (`models.positions.t5_bias`, `.disentangled`), counted in tokens."""

    n_buckets: int = 32
    """T5: buckets in all, of which a bidirectional model gives half to each direction. DeBERTa: buckets to either side; 0 gives
    every distance up to max_distance a row of its own."""
    max_distance: int = 128
    """Distances from here on share the last bucket."""
    shared: bool = True
    """Whether all layers use one table, as T5 does, or each has its own, as umT5 does."""
    terms: tuple[str, ...] = ()
    """mixer="disentangled": which of "c2p" (content to position) and "p2c" (position to content) join the content scores."""
    share_weights: bool = False
    """mixer="disentangled": a layer's own query and key weights serve for positions too."""
    norm: bool = False
    """mixer="disentangled": a LayerNorm acts on the table of positions."""
    key_bias: bool = True
    """mixer="disentangled": keys, of contents and of positions, have the bias that queries and values have."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "relative.")
        if (self.n_buckets < 4 or self.n_buckets % 2) and self.n_buckets:
            raise ConfigError(f"relative.n_buckets must be an even number of at least 4, or 0, got {self.n_buckets}.")
        positive("relative.max_distance", self.max_distance)
        for term in self.terms:
            one_of("relative.terms", term, ("c2p", "p2c"))
        if self.max_distance <= self.n_buckets // 2:
            raise ConfigError(
                f"relative.max_distance must exceed half of relative.n_buckets={self.n_buckets}, got {self.max_distance}."
            )

    @property
    def span(self) -> int:
        """Rows to either side of distance 0 in DeBERTa's table of positions."""
        return self.n_buckets or self.max_distance
