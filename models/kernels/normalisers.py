"""Normalisers beside the softmax, as pure functions from scores to the weights that multiply the values."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ..norms import widened

Weights = Float[Tensor, "batch head query key"]


def sigmoid_pattern(scores: Weights, bias: float | None = None) -> Weights:
    """sigmoid(score + bias), at least in float32: rows need not sum to 1 (Ramapuram et al. 2024, arXiv 2409.04431).

    scores: -inf where a key is masked; such keys get weight 0.
    bias: None takes -log(n), where n is the number of keys that the row's query sees. A row then sums to about 1 where scores
        are near 0, and decoding with a cache gives what one pass over all tokens gives.
    """
    scores, dtype = widened(scores), scores.dtype
    if bias is not None:
        return torch.sigmoid(scores + bias).to(dtype)
    seen = (scores > float("-inf")).sum(-1, keepdim=True).clamp(min=1)
    return torch.sigmoid(scores - seen.to(scores.dtype).log()).to(dtype)


def mix_heads(maps: Weights, weight: Float[Tensor, "head_out head"]) -> Float[Tensor, "batch head_out query key"]:
    """Every map a weighted sum of all heads' maps (talking heads, Shazeer et al. 2020, arXiv 2003.02436)."""
    return torch.einsum("oh,bhqk->boqk", weight.to(maps.dtype), maps)


def lambda_start(layer: int) -> float:
    """lambda_init of a layer counted from 0: 0.2 in the first, nearing 0.8 in deep ones (Ye et al. 2024, arXiv 2410.05258)."""
    return 0.8 - 0.6 * math.exp(-0.3 * layer)


def differential_pattern(
    maps: Float[Tensor, "batch two_heads query key"], factor: Float[Tensor, ""] | Float[Tensor, "1"]
) -> Float[Tensor, "batch head query key"]:
    """First half of the maps less `factor` times the second half: signed weights, whose rows sum to 1 - factor."""
    first, second = maps.chunk(2, dim=1)
    return first - factor.to(maps.dtype) * second
