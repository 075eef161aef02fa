"""Llama 3.1's rotary scaling, recovered from the factor per frequency that GGUF files hold in its place.

A frequency f of base^(-2i/dim) is divided by factor_i, where 1 / factor_i = k + (1 - k) / factor and k, between 0 and 1, is
(L f / 2 pi - low) / (high - low). So k is linear in f where it is not clipped, and two such frequencies give L and high for
low = 1; the published settings are tried first, since they are then exact.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import CheckpointError

Settings = tuple[float, float, float, int]

PUBLISHED: list[Settings] = [(factor, 1.0, 4.0, 8192) for factor in (8.0, 32.0)]
"""(factor, low_freq_factor, high_freq_factor, original context) of Llama 3.1 and of 3.2."""


def llama3_parameters(factors: Float[Tensor, " pair"], base: float, where: str) -> dict[str, Any]:
    """Parameters, named as in config.json, that give these factors. Raises CheckpointError where none of this form do."""
    frequencies = base ** -(torch.arange(len(factors), dtype=torch.float64) / len(factors))
    for settings in [*PUBLISHED, *_fitted(factors, frequencies)]:
        if torch.allclose(_factors(settings, frequencies), factors, rtol=1e-5, atol=0):
            names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
            return {"rope_type": "llama3", **dict(zip(names, settings, strict=True))}
    raise CheckpointError(f"tensor 'rope_freqs.weight' in {where} is not of Llama 3.1's form, the only one supported.")


def _factors(settings: Settings, frequencies: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
    factor, low, high, original = settings
    kept = ((original * frequencies / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return 1 / (kept + (1 - kept) / factor)


def _fitted(factors: Float[Tensor, " pair"], frequencies: Float[Tensor, " pair"]) -> list[Settings]:
    """Settings through the unclipped frequencies, low close to 1; none where fewer than two are unclipped."""
    factor = float(factors.max())
    if factor <= 1:
        return []
    kept = (1 / factors - 1 / factor) / (1 - 1 / factor)
    inside = (kept > 1e-4) & (kept < 1 - 1e-4)
    if int(inside.sum()) < 2:
        return []
    columns = torch.stack((frequencies[inside], torch.ones_like(frequencies[inside])), 1)
    slope, offset = torch.linalg.lstsq(columns, kept[inside, None]).solution[:, 0].tolist()
    if slope <= 0 or offset >= 0:
        return []
    # slope = L / 2 pi (high - low) and offset = -low / (high - low): a common factor of L, low and high is free.
    context = 2 * math.pi * slope / -offset
    low = round(context) / context
    return [(factor, low, low * (1 - 1 / offset), round(context))]
