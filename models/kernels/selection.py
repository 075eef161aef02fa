"""Attention to chosen keys, on tensors: which keys or blocks of keys a query picks, and what it sees of them.

A choice is [batch, selector, query, option], True where chosen: one selector for all heads, one per KV head, or one per head.
Options are keys, or blocks of consecutive tokens (`Blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Scores = Float[Tensor, "batch selector query option"]
Choice = Bool[Tensor, "batch selector query option"]
Visible = Bool[Tensor, "#batch #head query key"]
ByBlock = Float[Tensor, "batch head query block"]


def indexer_scores(
    q: Float[Tensor, "batch query #selector index_head d_index"],
    k: Float[Tensor, "batch key #selector d_index"],
    weights: Float[Tensor, "batch query #selector index_head"],
) -> Float[Tensor, "batch _ query key"]:
    """sum over h of weights[h] * relu(q[h] . k) (DeepSeek-AI 2025, arXiv 2512.02556, eq. 1), one small head at a time."""
    keys = k.permute(0, 2, 3, 1)
    total = q.new_zeros(())
    for queries, weight in zip(q.unbind(3), weights.unbind(3), strict=True):
        total = total + weight.transpose(1, 2)[..., None] * (queries.transpose(1, 2) @ keys).relu()
    return total


def choose(
    scores: Scores,
    n: int,
    allowed: Bool[Tensor, "#batch #selector query option"],
    always: Bool[Tensor, "#batch #selector query option"] | None = None,
) -> Choice:
    """The n highest of the allowed options of each query, or all where there are fewer; of equal scores, the earliest.

    always: options that come first whatever their score.
    """
    scores = scores.masked_fill(~allowed, float("-inf"))
    if always is not None:
        scores, allowed = scores.masked_fill(always, float("inf")), allowed | always
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order[..., :n], True) & allowed


@dataclass(frozen=True, eq=False)
class Blocks:
    """Key slots in blocks of `size` tokens, counted from the first token of a sequence or document; padding is in none.

    of: the block of each slot; `n`, which is one past the last block, for padding.
    """

    of: Int[Tensor, "batch key"]
    n: int
    size: int

    def mean(self, x: Float[Tensor, "batch key kv_head dim"]) -> Float[Tensor, "batch block kv_head dim"]:
        """The mean of each block's vectors."""
        index = self.of[:, :, None, None].expand(x.shape[0], -1, *x.shape[2:])
        total = x.new_zeros(x.shape[0], self.n + 1, *x.shape[2:]).scatter_add(1, index, x)
        return total[:, : self.n] / self._sizes()[..., None, None].to(x.dtype)

    def seen(self, visible: Visible) -> Tensor:
        """How many tokens of each block a query sees, [batch, head or 1, query, block]."""
        index = self._index(max(visible.shape[0], len(self.of)), *visible.shape[1:3])
        zeros = torch.zeros(*index.shape[:3], self.n + 1, dtype=torch.int32, device=visible.device)
        return zeros.scatter_add(-1, index, visible.int().expand_as(index))[..., : self.n]

    def own(self, n_past: int) -> Bool[Tensor, "batch 1 query block"]:
        """The block that each query, which sits in slot n_past + i, is in itself."""
        return (self.of[:, n_past:, None] == torch.arange(self.n, device=self.of.device))[:, None]

    def to_keys(self, by_block: Tensor) -> Tensor:
        """[batch, head, query, block] to [batch, head, query, key]: each key gets what its block has, padding False or 0."""
        padded = torch.cat((by_block, torch.zeros_like(by_block[..., :1])), -1)
        index = self._index(max(len(padded), len(self.of)), *padded.shape[1:3])
        return padded.expand(len(index), -1, -1, -1).gather(-1, index)

    def share_out(self, pattern: ByBlock) -> Float[Tensor, "batch head query key"]:
        """The weights on keys that read the same as these weights on block means."""
        return self.to_keys(pattern / self._sizes()[:, None, None].to(pattern.dtype))

    def _sizes(self) -> Int[Tensor, "batch block"]:
        """Tokens in each block; 1 for a block that only other rows of the batch have."""
        counts = torch.zeros(len(self.of), self.n + 1, dtype=torch.int64, device=self.of.device)
        return counts.scatter_add(1, self.of, torch.ones_like(self.of))[:, : self.n].clamp(min=1)

    def _index(self, batch: int, heads: int, queries: int) -> Int[Tensor, "_ head query key"]:
        return self.of[:, None, None].expand(batch, heads, queries, -1)


def blocks_of(positions: Int[Tensor, "#batch key"], real: Bool[Tensor, "batch key"] | None, size: int) -> Blocks:
    """A new block begins at every `size`-th position, and where positions start again; padding (real False) is skipped."""
    real = torch.ones_like(positions, dtype=torch.bool) if real is None else real
    begins = real & ((positions % size == 0) | (real.cumsum(-1) == 1))
    block = begins.cumsum(-1) - 1
    n = int(block.max()) + 1
    return Blocks(torch.where(real, block, n), n, size)


def importance(pattern: ByBlock, n_kv_heads: int) -> Float[Tensor, "batch kv_head query block"]:
    """How much the heads of a group look at each block, on average."""
    return pattern.unflatten(1, (n_kv_heads, -1)).mean(2)


def weighed(scores: Float[Tensor, "batch head query key"], selection: Tensor) -> Float[Tensor, "batch head query key"]:
    """Scores that give a key selection times the weight, where selection is above 0; the others are for the mask to hide."""
    return scores + torch.where(selection > 0, selection, 1.0).log()


def per_head(x: Tensor, n_heads: int) -> Tensor:
    """[batch, selector, ...] with one entry per query head, or still one for all."""
    return x if x.shape[1] in (1, n_heads) else x.repeat_interleave(n_heads // x.shape[1], 1)
