"""The mixer of Longformer (Beltagy et al. 2020, arXiv 2004.05150): a band, and tokens that see and are seen by all.

Global tokens have query, key and value weights of their own, for what they see; those who see them use the ordinary ones.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..errors import ConfigError, HookError
from ..hooks import HookPoint, hooked_scores
from ..kernels import banded, fused
from .attention import Attention, Inputs, project
from .context import AttentionContext
from .sparse_masks import global_tokens


class Projected(NamedTuple):
    """What the weights of global tokens make of a layer's input, [batch, pos, head, d_head]."""

    q: Tensor
    k: Tensor
    v: Tensor


class LongformerAttention(Attention):
    """Attention whose global rows have `hook_q_global`, `hook_k_global` and `hook_v_global` in place of the ordinary q, k and v.

    Without hooks on scores or pattern its memory is linear in the sequence.
    """

    linear_reads = False

    hook_q_global: HookPoint
    hook_k_global: HookPoint
    hook_v_global: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        if cfg.causal or cfg.mask != "longformer" or cfg.qk_steps or cfg.n_kv_heads != cfg.n_heads or not cfg.window:
            raise ConfigError(
                'mixer="longformer" needs mask="longformer", window, causal=False, as many KV heads as heads, and neither '
                f"rotary positions nor QK-norm; got mask={cfg.mask!r}, window={cfg.window}, causal={cfg.causal}."
            )
        self.q_global = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=cfg.qkv_bias)
        self.k_global = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=cfg.qkv_bias)
        self.v_global = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_value, bias=cfg.qkv_bias)
        self._make_hooks("q_global", "k_global", "v_global")

    def project(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Ordinary queries, keys and values; those of the global tokens wait in `context.shared`."""
        is_global = global_tokens(self.cfg, context)
        if bool(is_global.any()):
            n_heads = self.cfg.n_heads
            context.shared["global", self.layer] = Projected(
                self.hook_q_global(project(q_input, self.q_global, n_heads)),
                self.hook_k_global(project(k_input, self.k_global, n_heads)),
                self.hook_v_global(project(v_input, self.v_global, n_heads)),
            )
        else:
            self._refuse_edits_without_global_tokens()
        return super().project(q_input, k_input, v_input, context)

    def _refuse_edits_without_global_tokens(self) -> None:
        for point in (self.hook_q_global, self.hook_k_global, self.hook_v_global):
            if point.is_edited:
                raise HookError(f"hook on '{point.name}' cannot run: no token is global; name some with global_tokens.")

    def mix(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Float[Tensor, "batch pos head d_value"]:
        """pattern @ v, where global rows are made of the global q, k and v."""
        if self._can_fuse and not context.info.changes_masks:
            z = self._banded(q, k, v, context)
        else:
            pattern = self.normaliser(hooked_scores(self.hook_attn_scores, self.masked_scores(q, k, context)))
            z = self.apply_pattern(pattern, v, context)
        context.shared.pop(("global", self.layer), None)
        return z

    def scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> Float[Tensor, "batch head query key"]:
        """Scaled dot products, in global rows those of the global queries and keys."""
        ordinary, projected = super().scores(q, k, context), self._projected(context)
        if projected is None:
            return ordinary
        rows = global_tokens(self.cfg, context)[:, None, :, None]
        return torch.where(rows, self.products(projected.q, projected.k), ordinary)

    def apply_pattern(
        self, pattern: Float[Tensor, "batch head query key"], v: Tensor, context: AttentionContext
    ) -> Float[Tensor, "batch pos head d_value"]:
        """pattern @ v, in global rows with the global values."""
        projected = self._projected(context)
        if projected is None:
            return super().apply_pattern(pattern, v, context)
        both = super().apply_pattern(pattern, torch.cat((v, projected.v), -1), context)
        ordinary, special = both.chunk(2, -1)
        return torch.where(global_tokens(self.cfg, context)[:, :, None, None], special, ordinary)

    def _projected(self, context: AttentionContext) -> Projected | None:
        return context.shared.get(("global", self.layer))

    def _banded(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Tensor:
        """`mix` without a [query, key] tensor."""
        cfg, real, projected = self.cfg, context.real, self._projected(context)
        is_global = global_tokens(cfg, context).expand(q.shape[0], -1)
        local = ~is_global if real is None else ~is_global & real
        z = banded.attend(q, k, v, (cfg.window or 1) - 1, cfg.attn_scale, local, is_global)
        z = z if real is None else z * real[:, :, None, None]
        return z if projected is None else self._with_global_rows(z, projected, is_global, real)

    def _with_global_rows(
        self, z: Tensor, projected: Projected, is_global: Bool[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"] | None
    ) -> Tensor:
        """z with its global rows replaced; only as many queries are computed as the row with most global tokens has."""
        order = is_global.int().argsort(dim=1, descending=True, stable=True)[:, : int(is_global.sum(1).max())]
        index = order[:, :, None, None]
        queries = projected.q.gather(1, index.expand(-1, -1, *projected.q.shape[2:]))
        mask = None if real is None else real[:, None, None, :].expand(-1, 1, order.shape[1], -1)
        rows = fused.attend(queries, projected.k, projected.v, mask, self.cfg.attn_scale, False)
        index = index.expand(-1, -1, *z.shape[2:])
        kept = torch.where(is_global.gather(1, order)[:, :, None, None], rows, z.gather(1, index))
        return z.scatter(1, index, kept)
