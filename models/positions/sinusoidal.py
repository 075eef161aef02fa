"""Sinusoidal positions (Vaswani et al. 2017, arXiv 1706.03762, section 3.5): fixed waves added to the token embeddings."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sinusoidal_positions(
    positions: Int[Tensor, "batch pos"], d_model: int, layout: str = "interleaved", dtype: torch.dtype = torch.float32
) -> Float[Tensor, "batch pos d_model"]:
    """sin and cos of position / 10000^(2i / d_model), for i = 0 .. ceil(d_model / 2) - 1; angles in float64, then cast.

    layout: "interleaved", sin at dimension 2i and cos at 2i + 1, as the paper has it; or "half", all sines before all cosines,
        as Marian has it. An odd d_model has one sine more than cosines.
    """
    pairs = math.ceil(d_model / 2)
    frequencies = 10_000.0 ** (-2 * torch.arange(pairs, dtype=torch.float64, device=positions.device) / d_model)
    angles = positions[..., None].double() * frequencies
    if layout == "half":
        waves = torch.cat((angles.sin(), angles.cos()[..., : d_model // 2]), -1)
    else:
        waves = torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)[..., :d_model]
    return waves.to(dtype)
