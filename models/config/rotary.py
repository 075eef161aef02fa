"""Settings of rotary positions."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .checks import check_types, one_of, positive

ROTARY_LAYOUTS = ("half", "interleaved")
ROTARY_SCALINGS = ("none", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary position embedding (Su et al. 2021, arXiv 2104.09864) and its context-length scalings.

    `factor` stretches the context: `linear` divides all frequencies (Chen et al. 2023), `dynamic` raises the base with the
    current length (NTK-aware), `llama3` stretches long wavelengths only, `yarn` blends by wavelength (Peng et al. 2023),
    `longrope` divides each frequency by a number of its own (Ding et al. 2024), `proportional` turns only the fastest pairs.
    """

    base: float = 10_000.0
    dim: int | None = None
    """Leading dimensions of a head that are rotated; None rotates all of them."""
    layout: str = "half"
    """"half" or "interleaved": which dimensions form a pair: (i, i + dim/2), or (2i, 2i + 1)."""
    scaling: str = "none"
    """One of `ROTARY_SCALINGS`."""
    factor: float = 1.0
    original_n_ctx: int | None = None
    """Context length, in tokens, that the unscaled model was trained on."""
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """Multiplies cos and sin. None: 0.1 ln(factor) + 1 for `yarn`, sqrt(1 + ln(factor) / ln(original_n_ctx)) for `longrope`."""
    truncate: bool = True
    """`yarn`: round the ends of the ramp to whole dimensions."""
    short_factor: tuple[float, ...] = ()
    """`longrope`: what each pair's frequency is divided by in sequences of up to original_n_ctx tokens."""
    long_factor: tuple[float, ...] = ()
    """`longrope`: the same for longer sequences."""
    proportion: float = 1.0
    """`proportional`: share of the pairs that turn, the fastest first; the others stand still."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "rotary.")
        one_of("rotary.layout", self.layout, ROTARY_LAYOUTS)
        one_of("rotary.scaling", self.scaling, ROTARY_SCALINGS)
        for field in ("factor", "original_n_ctx", "low_freq_factor", "beta_slow", "attention_factor"):
            if (value := getattr(self, field)) is not None:
                positive(f"rotary.{field}", value)
        if self.scaling == "llama3" and self.low_freq_factor > self.high_freq_factor:
            raise ConfigError(
                f"rotary.high_freq_factor must be at least rotary.low_freq_factor={self.low_freq_factor}, "
                f"got {self.high_freq_factor}."
            )
        if self.scaling == "yarn" and self.beta_slow >= self.beta_fast:
            raise ConfigError(f"rotary.beta_fast must exceed rotary.beta_slow={self.beta_slow}, got {self.beta_fast}.")
        if self.base <= 1:
            raise ConfigError(f"rotary.base must exceed 1, got {self.base}.")
        if self.dim is not None and (self.dim <= 0 or self.dim % 2):
            raise ConfigError(f"rotary.dim must be a positive even number of dimensions, got {self.dim}.")
        for divisor in (*self.short_factor, *self.long_factor):
            positive("rotary.short_factor and rotary.long_factor", divisor)
        if not 0 < self.proportion <= 1:
            raise ConfigError(f"rotary.proportion must be above 0 and at most 1, got {self.proportion}.")
        if self.scaling in ("dynamic", "llama3", "yarn", "longrope") and self.original_n_ctx is None:
            raise ConfigError(
                f"rotary.scaling={self.scaling!r} needs rotary.original_n_ctx, the context length of the unscaled model."
            )
