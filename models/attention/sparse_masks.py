"""Masks that leave keys out to save work: Longformer's band with global tokens, BigBird's blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..config import SparseConfig, TransformerConfig
from ..errors import ConfigError, InputError
from ..kernels.block_sparse import block_counts, is_block_sparse

if TYPE_CHECKING:
    from .context import AttentionContext
    from .masks import MaskView

Visible = Bool[Tensor, "#batch #head query key"]
Counts = Int[Tensor, "#batch #head query key"]


def global_tokens(cfg: TransformerConfig, context: AttentionContext) -> Bool[Tensor, "batch pos"]:
    """Which real tokens are global: those of the call, else the first `sparse.n_global` of each row."""
    named = context.info.global_tokens
    if named is None:
        named = context.positions < (cfg.sparse.n_global if cfg.sparse else 0)
    return named if context.real is None else named & context.real


def longformer(view: MaskView) -> Visible:
    """Keys fewer than `window` slots away on either side, and every key where the query or the key is global."""
    if view.cfg.causal:
        raise ConfigError('mask="longformer" looks both ways; it needs causal=False.')
    is_global = global_tokens(view.cfg, view.context)
    near = view.distance.abs() < (view.cfg.window or 0)
    return (near | is_global[:, :, None] | is_global[:, None, :])[:, None]


def key_counts(cfg: TransformerConfig, context: AttentionContext) -> Counts:
    """How often each key enters the softmax of each query. Blocks are counted from each row's first real token.

    So a padded row gets what it would get alone; the published code moves its blocks with the padding.
    """
    if cfg.sparse is None or cfg.causal:
        raise ConfigError('mask="big_bird" needs sparse, the settings of its blocks, and causal=False.')
    if context.info.documents is not None:
        raise InputError("documents cannot be combined with block-sparse attention, whose blocks span them.")
    key = ("big_bird", cfg.sparse, cfg.n_heads)
    if key not in context.shared:
        rows = context.positions
        lengths = [rows.shape[1]] * len(rows) if context.real is None else context.real.sum(1).tolist()
        counts = [_row_counts(cfg.sparse, cfg.n_heads, row, n) for row, n in zip(rows, lengths, strict=True)]
        context.shared[key] = torch.stack(torch.broadcast_tensors(*counts)).to(rows.device)
    return context.shared[key]


def _row_counts(sparse: SparseConfig, n_heads: int, positions: Int[Tensor, " key"], n: int) -> Int[Tensor, "#head key key"]:
    if not is_block_sparse(n, sparse.block, sparse.n_random):
        return torch.ones(1, len(positions), len(positions), dtype=torch.long)
    counts = block_counts(-(-n // sparse.block), n_heads, sparse.n_random, sparse.seed)
    blocks = positions.cpu() // sparse.block
    return counts[:, blocks[:, None], blocks[None]]


def big_bird(view: MaskView) -> Visible:
    """Keys whose block is seen: the query's own and its neighbours, the first, the last, and the random ones."""
    return key_counts(view.cfg, view.context) > 0
