"""Fused attention: torch's scaled_dot_product_attention, which tiles over keys and keeps no weights.

It has no soft-cap, so a layer with one takes the dense path (`can_fuse`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from .reference import Keys, Mask, Mixed, Queries, Values


def can_fuse(softcap: float | None) -> bool:
    """Whether the fused kernel computes this kind of score."""
    return softcap is None


def attend(q: Queries, k: Keys, v: Values, mask: Mask | None, scale: float, is_causal: bool) -> Mixed:
    """z [batch, query, head, d_value]. `mask` is None when `is_causal` says it all. A query that sees no key gets z = 0."""
    grouped = q.shape[2] != k.shape[2]
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale, enable_gqa=grouped).transpose(1, 2)
    # Kernels disagree on rows without keys (zeros, NaN, or uniform): let such a row see everything, then set it to 0.
    empty = ~mask.any(-1, keepdim=True)
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask | empty, scale=scale, enable_gqa=grouped)
    return z.masked_fill(empty, 0.0).transpose(1, 2)


def attend_with_sink(
    q: Queries, k: Keys, v: Values, mask: Mask | None, scale: float, is_causal: bool, sink: Float[Tensor, " head"]
) -> Mixed:
    """`attend`, each head with one more key, whose score is always `sink` and whose value is 0.

    The key comes first. It scores through one more dimension, where it holds 1, other keys 0, and queries the sink.
    """
    d_value, batch = v.shape[-1], k.shape[0]
    scores = (sink / scale).to(q.dtype)[:, None].expand(*q.shape[:3], 1)
    q, k = torch.cat((q, scores), -1), F.pad(k, (0, 1))
    k = torch.cat((F.pad(k.new_ones(batch, 1, k.shape[2], 1), (k.shape[-1] - 1, 0)), k), 1)
    # Kernels that build no [query, key] tensor want q, k and v of one width, a multiple of 8.
    width = -(-max(q.shape[-1], d_value) // 8) * 8
    q, k, v = (F.pad(x, (0, width - x.shape[-1])) for x in (q, k, F.pad(v, (0, 0, 0, 0, 1, 0))))
    if is_causal:
        # A query ahead of all others keeps each of these at its own key.
        return attend(F.pad(q, (0, 0, 0, 0, 1, 0)), k, v, None, scale, True)[:, 1:, :, :d_value]
    return attend(q, k, v, None if mask is None else F.pad(mask, (1, 0), value=True), scale, False)[..., :d_value]
