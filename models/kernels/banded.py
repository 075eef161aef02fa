"""Attention to a band around each query plus a few keys that everybody sees, in memory linear in the sequence.

Beltagy et al. 2020 (Longformer, arXiv 2004.05150). Queries are cut into blocks as long as the band reaches, so that each block
needs its own keys and those of its two neighbours only.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from .reference import softmax_pattern

Heads = Float[Tensor, "batch pos head d"]
Shared = Float[Tensor, "batch shared head d"]
Tokens = Bool[Tensor, "batch pos"]


def attend(q: Heads, k: Heads, v: Heads, reach: int, scale: float, local: Tokens, shared: Tokens) -> Heads:
    """z of every query over the `local` keys up to `reach` tokens away on either side, and over all `shared` keys.

    local, shared: which keys may be seen in the band, and which from everywhere; no key is both. A query that sees no key gets 0.
    """
    n, width = q.shape[1], max(reach, 1)
    q_blocks, k_blocks, v_blocks = (_blocks(x, width) for x in (q, k, v))
    scores = torch.einsum("bcqhd,bckhd->bchqk", q_blocks, _with_neighbours(k_blocks)) * scale
    in_band = _band(width, reach, q.device) & _with_neighbours(_blocks(local, width))[:, :, None, None]
    scores = scores.masked_fill(~in_band, float("-inf"))
    k_shared, v_shared, is_key = _gathered(k, v, shared)
    everywhere = torch.einsum("bcqhd,bkhd->bchqk", q_blocks, k_shared) * scale
    everywhere = everywhere.masked_fill(~is_key[:, None, None, None], float("-inf"))
    scores = torch.cat((everywhere, scores), -1)
    pattern = softmax_pattern(scores.flatten(0, 1)).view_as(scores)
    far, near = pattern.split([is_key.shape[1], 3 * width], -1)
    z = torch.einsum("bchqk,bckhd->bcqhd", near, _with_neighbours(v_blocks))
    z = z + torch.einsum("bchqk,bkhd->bcqhd", far, v_shared)
    return z.flatten(1, 2)[:, :n]


def _blocks(x: Tensor, width: int) -> Tensor:
    """[batch, pos, ...] as [batch, block, width, ...], zeros after the end."""
    padding = -x.shape[1] % width
    return F.pad(x, (0, 0) * (x.dim() - 2) + (0, padding)).unflatten(1, (-1, width))


def _with_neighbours(blocks: Tensor) -> Tensor:
    """Each block between the one before and the one after it: [batch, block, 3 * width, ...]."""
    padded = F.pad(blocks, (0, 0) * (blocks.dim() - 2) + (1, 1))
    return torch.cat((padded[:, :-2], blocks, padded[:, 2:]), 2)


def _band(width: int, reach: int, device: torch.device) -> Bool[Tensor, "query key"]:
    query, key = torch.arange(width, device=device), torch.arange(3 * width, device=device) - width
    return (query[:, None] - key[None]).abs() <= reach


def _gathered(k: Heads, v: Heads, shared: Tokens) -> tuple[Shared, Shared, Bool[Tensor, "batch shared"]]:
    """The shared keys and values of each row at the front, as many as the row with most has; which of them are real."""
    most = int(shared.sum(1).max())
    order = shared.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    is_key = shared.gather(1, order)
    index = order[:, :, None, None]
    k, v = (x.gather(1, index.expand(-1, -1, *x.shape[2:])) for x in (k, v))
    return k, v, is_key
