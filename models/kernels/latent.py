"""Latent attention on tensors (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1): keys and values expanded from a small latent.

`naive` expands a key and a value per head; `absorbed` moves the expansion to the query and the result, so that all heads read
the one latent. Both take the same arguments and agree.

    latent    [batch, key, rank]       what keys and values are made of, after its norm
    k_shared  [batch, key, d_shared]   the part of the key that all heads share, rotated
    up_k      [head, rank, d_content]  latent @ up_k[h] is the rest of head h's key
    up_v      [head, rank, d_value]    latent @ up_v[h] is head h's value
    q         [batch, query, head, d_content + d_shared], its last d_shared dimensions rotated
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from . import fused, reference

Latent = Float[Tensor, "batch key rank"]
Shared = Float[Tensor, "batch key d_shared"]
UpK = Float[Tensor, "head rank d_content"]
UpV = Float[Tensor, "head rank d_value"]
Queries = Float[Tensor, "batch query head d_head"]
Mask = Bool[Tensor, "#batch #head query key"]


def expand(
    latent: Float[Tensor, "batch pos *head rank"], up: Float[Tensor, "head rank dim"]
) -> Float[Tensor, "batch pos head dim"]:
    """What every head makes of the latent; one that already differs by head meets only its own head's weights."""
    return torch.einsum("bphr,hre->bphe" if latent.dim() == 4 else "bpr,hre->bphe", latent, up)


def join_key(
    content: Float[Tensor, "batch key head d_content"], shared: Float[Tensor, "batch key *head d_shared"]
) -> Float[Tensor, "batch key head d_head"]:
    """A whole key per head: its own content, then the part that all heads share."""
    shared = shared if shared.dim() == 4 else shared[:, :, None].expand(-1, -1, content.shape[2], -1)
    return torch.cat((content, shared), -1)


def score_parts(
    q: Queries, k: Float[Tensor, "batch key head d_head"], d_shared: int, scale: float
) -> tuple[Float[Tensor, "batch head query key"], Float[Tensor, "batch head query key"]]:
    """Scaled scores by content and by the shared, rotated dimensions; the two add up to scale * q.k."""
    q, k = q.transpose(1, 2), k.permute(0, 2, 3, 1)
    n_content = q.shape[-1] - d_shared
    return q[..., :n_content] @ k[:, :, :n_content] * scale, q[..., n_content:] @ k[:, :, n_content:] * scale


def naive(
    q: Queries, latent: Latent, k_shared: Shared, up_k: UpK, up_v: UpV, mask: Mask | None, scale: float
) -> Float[Tensor, "batch query head d_value"]:
    """z, with a key and a value per head."""
    k = join_key(expand(latent, up_k), k_shared)
    return reference.attend(q, k, expand(latent, up_v), mask, scale)


def absorbed(
    q: Queries, latent: Latent, k_shared: Shared, up_k: UpK, up_v: UpV, mask: Mask | None, scale: float
) -> Float[Tensor, "batch query head d_value"]:
    """The same z by q W_uk^T . latent and (pattern @ latent) W_uv: one key, one value, and no tensor with both key and head."""
    rank, d_content = up_k.shape[1:]
    q_latent = torch.einsum("bqhe,hre->bqhr", q[..., :d_content], up_k)
    k = torch.cat((latent, k_shared), -1)[:, :, None]
    # The value is the key: its first `rank` columns are the latent, and with equal widths the tiled kernel applies.
    mixed = fused.attend(torch.cat((q_latent, q[..., d_content:]), -1), k, k, mask, scale, is_causal=False)[..., :rank]
    return torch.einsum("bqhr,hre->bqhe", mixed, up_v)
