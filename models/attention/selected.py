"""Attention to keys that each query chooses, and mixture of block attention."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..config import SparseConfig, TransformerConfig
from ..errors import ConfigError, HookError
from ..hooks import HookPoint, hooked_scores
from ..kernels import fused, reference
from ..kernels.selection import Blocks, blocks_of, choose, per_head, weighed
from .attention import Attention
from .context import AttentionContext

Choice = Bool[Tensor, "batch selector query key"]


class SelectedAttention(Attention):
    """Attention whose queries see only keys they choose, on top of the mask; subclasses say which (`choose`).

    `hook_selection` is 1 for a chosen key and 0 for any other. A number in between multiplies the key's weight before rows are
    normalised to 1. A key that the mask hides stays hidden whatever is chosen.
    """

    hook_selection: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self._make_hooks("selection")

    def choose(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """The keys that each query sees, [batch, selector, query, key]: a `Choice`, or one that was edited before."""
        raise NotImplementedError

    def select(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        """The choice, hooked as in `hooked_choice`."""
        return hooked_choice(self.hook_selection, self.choose(q, k, context), q.dtype)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Float[Tensor, "batch pos head d_value"]:
        selection = per_head(self.select(q, k, context), self.cfg.n_heads)
        mask, is_weighted = (selection > 0) & visible(context, self.cfg), selection.is_floating_point()
        if self._can_fuse and not is_weighted:
            return fused.attend(q, k, v, mask, self.cfg.attn_scale, is_causal=False)
        scores = reference.capped(self.scores(q, k, context), self.cfg.attn_softcap)
        if is_weighted:
            scores = weighed(scores, selection)
        scores = hooked_scores(self.hook_attn_scores, reference.masked(scores, mask))
        return self.apply_pattern(self.normaliser(scores), v, context)


class BlockMixture(SelectedAttention):
    """Mixture of block attention (Lu et al. 2025, arXiv 2502.13189): each head of each query picks blocks by their mean key.

    `hook_block_scores` is q . mean(k) of the blocks that lie wholly in the past, -inf for all others. The highest
    `sparse.n_selected - 1` of them are seen, beside the query's own block, as far as it is past.
    """

    hook_block_scores: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.sparse = sparse_config(cfg, "n_selected")
        self._make_hooks("block_scores")

    def choose(self, q: Tensor, k: Tensor, context: AttentionContext) -> Choice:
        blocks = token_blocks(context, self.sparse.block)
        own = blocks.own(context.n_past)
        whole = (blocks.seen(visible(context, self.cfg)) == blocks.size) & ~own
        scores = reference.masked(reference.dot_products(q, blocks.mean(k)), whole)
        chosen = choose(ranking(self.hook_block_scores, scores), self.sparse.n_selected, whole, always=own)
        return blocks.to_keys(chosen)


def hooked_choice(point: HookPoint, choice: Tensor, dtype: torch.dtype) -> Tensor:
    """The choice as it was, or in floating point where something at its hook may have edited it."""
    if not point.is_hooked:
        return choice
    seen = point(choice.to(dtype))
    return seen if point.is_in_graph else choice


def ranking(point: HookPoint, scores: Tensor) -> Tensor:
    """Scores that only rank, hooked. Raises HookError for a backward hook, which would never run."""
    if point.backward_hooks:
        raise HookError(f"no gradient reaches '{point.name}': its scores only rank keys.")
    return point(scores)


def sparse_config(cfg: TransformerConfig, *needed: str) -> SparseConfig:
    """`cfg.sparse`. Raises ConfigError where it, or a field that the mixer needs, is not set."""
    for field in needed:
        if cfg.sparse is None or not getattr(cfg.sparse, field):
            raise ConfigError(f"mixer={cfg.mixer!r} needs sparse.{field}, a positive whole number.")
    return cfg.sparse or SparseConfig()


def visible(context: AttentionContext, cfg: TransformerConfig) -> Bool[Tensor, "#batch #head query key"]:
    """The mask, also where it hides nothing."""
    mask = context.mask(cfg)
    if mask is not None:
        return mask
    n_queries = context.n_keys - context.n_past
    return torch.ones(1, 1, n_queries, context.n_keys, dtype=torch.bool, device=context.positions.device)


def token_blocks(context: AttentionContext, size: int) -> Blocks:
    """The call's tokens in blocks, made once for all layers."""
    key = ("blocks", size)
    if key not in context.shared:
        context.shared[key] = blocks_of(context.positions, context.real, size)
    return context.shared[key]
