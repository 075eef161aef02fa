"""Dense attention, step by step, as every hook sees it.

Queries and keys are [batch, pos, head, d_head], values [batch, pos, head, d_value], scores and pattern [batch, head, query, key].
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..norms import widened

Queries = Float[Tensor, "batch query head d_head"]
Keys = Float[Tensor, "batch key kv_head d_head"]
Values = Float[Tensor, "batch key kv_head d_value"]
Mixed = Float[Tensor, "batch query head d_value"]
Weights = Float[Tensor, "batch head query key"]
Mask = Bool[Tensor, "#batch #head query key"]


def repeat_kv(x: Float[Tensor, "batch key kv_head dim"], n_heads: int) -> Float[Tensor, "batch key head dim"]:
    """One key or value per query head: query head h reads KV head h // (n_heads / kv_heads)."""
    return x.repeat_interleave(n_heads // x.shape[2], dim=2) if n_heads != x.shape[2] else x


def dot_products(q: Queries, k: Keys) -> Weights:
    """q.k of every query and key, per query head."""
    return q.transpose(1, 2) @ repeat_kv(k, q.shape[2]).permute(0, 2, 3, 1)


def capped(scores: Weights, softcap: float | None) -> Weights:
    """Scores bent into (-softcap, softcap) by tanh, where a model does so (Gemma 2). Comes before the mask."""
    return scores if softcap is None else softcap * torch.tanh(scores / softcap)


def masked(scores: Weights, mask: Mask | None) -> Weights:
    """-inf where the mask hides a key."""
    return scores if mask is None else scores.masked_fill(~mask, float("-inf"))


def softmax_pattern(scores: Weights) -> Weights:
    """Softmax over keys, at least in float32; a row that sees no key gets weight 0 everywhere, and no NaN forward or backward."""
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    pattern = torch.softmax(widened(scores).masked_fill(empty, 0.0), -1)
    return pattern.masked_fill(empty, 0.0).to(scores.dtype)


def mix_values(pattern: Weights, v: Values) -> Mixed:
    """z[query] = sum over keys of pattern * v."""
    v = repeat_kv(v, pattern.shape[1])
    return (pattern @ v.transpose(1, 2)).transpose(1, 2)


def attend(q: Queries, k: Keys, v: Values, mask: Mask | None, scale: float, softcap: float | None = None) -> Mixed:
    """Dense attention in one call, for comparison with `fused.attend`."""
    return mix_values(softmax_pattern(masked(capped(dot_products(q, k) * scale, softcap), mask)), v)
