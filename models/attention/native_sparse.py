"""Native sparse attention (Yuan et al. 2025, arXiv 2502.11089): block means, chosen blocks and a window, gated and added up."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..cache import KVCache
from ..config import TransformerConfig
from ..errors import ConfigError
from ..hooks import HookPoint, hooked_scores
from ..kernels import fused, reference
from ..kernels.selection import Blocks, choose, importance, per_head, weighed
from .attention import Attention, Inputs, project
from .context import AttentionContext
from .selected import hooked_choice, sparse_config, token_blocks, visible

Mixed = Float[Tensor, "batch query head d_value"]
Mask = Bool[Tensor, "#batch #head query key"]


class NativeSparseAttention(Attention):
    """Three softmax attentions over the same keys and values, each times a gate in (0, 1) per head and token.

        compressed   to the mean key and value of each block wholly in the past     hook_block_scores, hook_pattern_compressed
        selected     to the tokens of `sparse.n_selected` blocks                    hook_selection, hook_pattern_selected
        window       to the last `sparse.window` tokens                             hook_pattern_window

    The selected blocks are the first one, the query's own and the one before it, then those that the compressed patterns of the
    heads of a group weigh most on average. `hook_gate_branches` holds the gates in the order above. `hook_pattern` is what they
    come to together, the gated sum of the three over tokens, where a block's weight is shared out evenly among its tokens: it
    times v is z exactly. Its rows do not sum to 1. No one score stands behind it, so there is no `hook_attn_scores`.
    """

    linear_reads = False

    hook_block_scores: HookPoint
    hook_pattern_compressed: HookPoint
    hook_pattern_selected: HookPoint
    hook_pattern_window: HookPoint
    hook_selection: HookPoint
    hook_gate_branches: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        _refuse_unused(cfg)
        self.sparse = sparse_config(cfg, "n_selected", "window")
        self.gate = nn.Linear(cfg.d_model, cfg.n_heads * 3, bias=False)
        del self.hook_attn_scores
        branches = ("pattern_compressed", "pattern_selected", "pattern_window")
        self._make_hooks("block_scores", *branches, "selection", "gate_branches")

    def forward(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext, cache: KVCache | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        q, k, v = self.project(q_input, k_input, v_input, context)
        q, k = self.prepare(q, k, context)
        k, v = self.remember(k, v, context, cache)
        gates = self.hook_gate_branches(project(q_input, self.gate, self.cfg.n_heads).sigmoid())
        return self.write(self.mix_branches(q, k, v, gates, context), q_input, context)

    def mix_branches(self, q: Tensor, k: Tensor, v: Tensor, gates: Tensor, context: AttentionContext) -> Mixed:
        """The gated sum of the three branches; gates [batch, query, head, branch]."""
        blocks, mask = token_blocks(context, self.sparse.block), visible(context, self.cfg)
        compressed = self.compressed_pattern(q, blocks.mean(k), blocks.seen(mask) == blocks.size)
        selection = per_head(self.select(compressed, blocks, mask, context), self.cfg.n_heads)
        masks = ((selection > 0) & mask, self._window(context) & mask)
        if self._can_fuse and not selection.is_floating_point():
            tokens = [fused.attend(q, k, v, each, self.cfg.attn_scale, is_causal=False) for each in masks]
            parts = [reference.mix_values(compressed, blocks.mean(v)), *tokens]
            return (gates.unsqueeze(-2) * torch.stack(parts, -1)).sum(-1)
        scores = reference.dot_products(q, k) * self.cfg.attn_scale
        chosen = weighed(scores, selection) if selection.is_floating_point() else scores
        selected = self.hook_pattern_selected(self.normaliser(reference.masked(chosen, masks[0])))
        near = self.hook_pattern_window(self.normaliser(reference.masked(scores, masks[1])))
        patterns = torch.stack((blocks.share_out(compressed), selected, near), -1)
        pattern = (gates.transpose(1, 2).unsqueeze(-2) * patterns).sum(-1)
        return self.apply_pattern(pattern, v, context)

    def compressed_pattern(self, q: Tensor, k: Tensor, whole: Tensor) -> Float[Tensor, "batch head query block"]:
        """Softmax over the mean keys of blocks that a query sees wholly."""
        scores = reference.masked(reference.dot_products(q, k) * self.cfg.attn_scale, whole)
        return self.hook_pattern_compressed(self.normaliser(hooked_scores(self.hook_block_scores, scores)))

    def select(self, compressed: Tensor, blocks: Blocks, mask: Mask, context: AttentionContext) -> Tensor:
        """The tokens of the blocks that each group of heads chooses."""
        seen = blocks.seen(mask)
        own = blocks.own(context.n_past)
        first = (seen > 0) & ((seen > 0).cumsum(-1) == 1)
        before = F.pad(own[..., 1:], (0, 1)) & (seen > 0)
        scores = importance(compressed, self.cfg.n_kv_heads)
        chosen = choose(scores, self.sparse.n_selected, seen == blocks.size, always=own | first | before)
        return hooked_choice(self.hook_selection, blocks.to_keys(chosen), compressed.dtype)

    def _window(self, context: AttentionContext) -> Bool[Tensor, "batch 1 query key"]:
        distance = context.query_positions[:, :, None] - context.positions[:, None, :]
        return (distance.abs() < self.sparse.window)[:, None]

    @property
    def _can_fuse(self) -> bool:
        hooks = (self.hook_pattern, self.hook_pattern_selected, self.hook_pattern_window)
        return self.normaliser.fusable and not (self._steps_want_pattern or any(point.is_hooked for point in hooks))


def _refuse_unused(cfg: TransformerConfig) -> None:
    """Raise ConfigError for settings of ordinary attention that have no meaning here."""
    for field, unset in (("score_terms", ()), ("attn_softcap", None)):
        if getattr(cfg, field) != unset:
            raise ConfigError(f"mixer={cfg.mixer!r} has no {field}, got {getattr(cfg, field)!r}.")
    if cfg.sparse is not None and 0 < cfg.sparse.n_selected < 3:
        raise ConfigError(f"sparse.n_selected must be at least 3, the blocks that are always seen, got {cfg.sparse.n_selected}.")
