"""Rotary positions (Su et al. 2021, arXiv 2104.09864) and the scalings that stretch their context.

A pair of dimensions i is turned by position * inverse_frequency[i]. A scaling is one small function on the inverse
frequencies, in float64, registered in `SCALINGS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..config import RotaryConfig, TransformerConfig


class RotaryTables(NamedTuple):
    """Cosines and sines of every rotated angle, [batch or 1, pos, pair]."""

    cos: Tensor
    sin: Tensor


class Frequencies(NamedTuple):
    """Inverse frequencies in radians per token, [pair], float64, and the factor on cos and sin."""

    inverse: Tensor
    attention_factor: float


def base_frequencies(base: float, dim: int, device: torch.device | None = None) -> Float[Tensor, " pair"]:
    """base^(-2i/dim) for i = 0 .. dim/2 - 1 (Su et al., eq. 15)."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim
    return base**-exponents


def _none(rotary: RotaryConfig, dim: int, length: int) -> Frequencies:
    return Frequencies(base_frequencies(rotary.base, dim), 1.0)


def _linear(rotary: RotaryConfig, dim: int, length: int) -> Frequencies:
    """Position interpolation (Chen et al. 2023, arXiv 2306.15595): all angles divided by the factor."""
    return Frequencies(base_frequencies(rotary.base, dim) / rotary.factor, 1.0)


def _dynamic(rotary: RotaryConfig, dim: int, length: int) -> Frequencies:
    """NTK-aware scaling that grows with the current length: base * (f n / L - (f - 1))^(dim / (dim - 2)) beyond L tokens."""
    trained = rotary.original_n_ctx or length
    stretch = rotary.factor * max(length, trained) / trained - (rotary.factor - 1)
    return Frequencies(base_frequencies(rotary.base * stretch ** (dim / (dim - 2)), dim), 1.0)


def _llama3(rotary: RotaryConfig, dim: int, length: int) -> Frequencies:
    """Llama 3.1: wavelengths past L / low_freq_factor are stretched, those under L / high_freq_factor kept, the rest blended."""
    inverse = base_frequencies(rotary.base, dim)
    turns = (rotary.original_n_ctx or length) * inverse / (2 * math.pi)
    low, high = rotary.low_freq_factor, rotary.high_freq_factor
    # Llama 4 Scout has both alike: a step instead of a ramp.
    kept = ((turns - low) / (high - low)).clamp(0, 1) if high > low else (turns > low).to(inverse.dtype)
    return Frequencies(inverse * (kept + (1 - kept) / rotary.factor), 1.0)


def _yarn(rotary: RotaryConfig, dim: int, length: int) -> Frequencies:
    """YaRN (Peng et al. 2023, arXiv 2309.00071, section 3.2): interpolate slow dimensions, keep fast ones, ramp between."""
    trained = rotary.original_n_ctx or length

    def dimension_with(turns: float) -> float:
        return dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(rotary.base))

    low, high = dimension_with(rotary.beta_fast), dimension_with(rotary.beta_slow)
    if rotary.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (torch.arange(dim // 2, dtype=torch.float64) - low) / max(high - low, 0.001)
    kept = 1 - ramp.clamp(0, 1)
    inverse = base_frequencies(rotary.base, dim)
    factor = rotary.attention_factor
    if factor is None:
        factor = 0.1 * math.log(rotary.factor) + 1 if rotary.factor > 1 else 1.0
    return Frequencies(inverse * (kept + (1 - kept) / rotary.factor), factor)


def _longrope(rotary: RotaryConfig, dim: int, length: int) -> Frequencies:
    """LongRoPE (Ding et al. 2024, arXiv 2402.13753): a divisor per pair, one set for up to L tokens, one beyond."""
    trained = rotary.original_n_ctx or length
    divisors = torch.tensor(rotary.long_factor if length > trained else rotary.short_factor, dtype=torch.float64)
    factor = rotary.attention_factor
    if factor is None:
        factor = math.sqrt(1 + math.log(rotary.factor) / math.log(trained)) if rotary.factor > 1 else 1.0
    return Frequencies(base_frequencies(rotary.base, dim) / divisors, factor)


def _proportional(rotary: RotaryConfig, dim: int, length: int) -> Frequencies:
    """Gemma 4: the slowest pairs stand still, and the others keep the angles they have in a head that turns as a whole."""
    inverse = base_frequencies(rotary.base, dim) / rotary.factor
    inverse[int(rotary.proportion * dim // 2) :] = 0
    return Frequencies(inverse, 1.0)


SCALINGS: dict[str, Callable[[RotaryConfig, int, int], Frequencies]] = {
    "none": _none,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "proportional": _proportional,
}


STALE: dict[str, Callable[[int, int, int], bool]] = {
    "dynamic": lambda limit, past, total: total > limit,
    "longrope": lambda limit, past, total: 0 < past <= limit < total,
}
"""Whether a scaling makes what was computed for `past` tokens wrong for a sequence of `total`: `dynamic` changes all angles with
each token past its limit, `longrope` once, on passing it. Every deeper state changes with them."""


def stale_cache(cfg: TransformerConfig, past: int, total: int) -> RotaryConfig | None:
    """The rotary settings by which a cache of `past` tokens does not hold for a sequence of `total`; None where it does.

    Padding does not count; the longest row of a batch decides for all.
    """
    layers = {kind: layer for layer, kind in enumerate(cfg.layer_types)}
    for rotary in map(cfg.rotary_for, layers.values()):
        if rotary is not None and rotary.scaling in STALE:
            if STALE[rotary.scaling](rotary.original_n_ctx or total, past, total):
                return rotary
    return None


def rotary_tables(
    rotary: RotaryConfig, d_head: int, positions: Int[Tensor, "batch pos"], length: int, dtype: torch.dtype
) -> RotaryTables:
    """Tables for these positions in a sequence of `length` tokens; angles are computed in float64, then cast to dtype."""
    frequencies = SCALINGS[rotary.scaling](rotary, rotary.dim or d_head, length)
    angles = positions[..., None].double() * frequencies.inverse.to(positions.device)
    factor = frequencies.attention_factor
    return RotaryTables((angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype))


def rotate(
    x: Float[Tensor, "batch pos head d_head"], tables: RotaryTables, layout: str
) -> Float[Tensor, "batch pos head d_head"]:
    """Turn the leading dimensions of each head by the angles of its position; dimensions past the tables pass unchanged.

    layout "half" pairs dimension i with i + dim/2, "interleaved" pairs 2i with 2i + 1.
    """
    cos, sin = tables.cos[:, :, None], tables.sin[:, :, None]
    dim = 2 * cos.shape[-1]
    turned, rest = x[..., :dim], x[..., dim:]
    if layout == "interleaved":
        first, second = turned[..., 0::2], turned[..., 1::2]
        out = torch.stack((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    else:
        first, second = turned.chunk(2, -1)
        out = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return (torch.cat((out, rest), -1) if rest.shape[-1] else out).to(x.dtype)
