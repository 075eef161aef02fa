"""Fused attention: torch's scaled_dot_product_attention, which tiles over keys and keeps no weights.

It has no soft-cap, so a layer with one takes the dense path (`can_fuse`).
"""

from __future__ import annotations

import torch.nn.functional as F

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
