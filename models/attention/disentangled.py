"""The mixer of DeBERTa (He et al. 2021, arXiv 2006.03654): scores that are sums of three, each behind a hook of its own."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn, ones, zeros

from ..config import RelativeConfig, TransformerConfig
from ..errors import ConfigError
from ..hooked import Part
from ..hooks import HookPoint
from ..kernels import reference
from ..positions.disentangled import content_to_position, position_to_content, relative_rows
from .attention import Attention
from .context import AttentionContext
from .talking_heads import TalkingHeads


class RelativeTable(Part):
    """A vector per relative position, and what makes keys and queries of it.

    `table` [2 * span, d_model] and its norm are one for all layers; `k` and `q` are each layer's own.
    """

    def __init__(self, cfg: TransformerConfig, relative: RelativeConfig) -> None:
        super().__init__()
        self.eps, self.has_norm = cfg.norm_eps, relative.norm
        self.table = nn.Parameter(zeros(2 * relative.span, cfg.d_model))
        self.shared_parameters = ("table",)
        if relative.norm:
            self.norm_weight, self.norm_bias = nn.Parameter(ones(cfg.d_model)), nn.Parameter(zeros(cfg.d_model))
            self.shared_parameters = ("table", "norm_weight", "norm_bias")
        if "c2p" in relative.terms and not relative.share_weights:
            self.k = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=cfg.qkv_bias and relative.key_bias)
        if "p2c" in relative.terms and not relative.share_weights:
            self.q = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=cfg.qkv_bias)

    def forward(self) -> Float[Tensor, "row d_model"]:
        """The vectors, normed where the model does so."""
        if not self.has_norm:
            return self.table
        return F.layer_norm(self.table, self.table.shape[1:], self.norm_weight, self.norm_bias, self.eps)


class DisentangledAttention(Attention):
    """Attention whose scores are `hook_score_c2c` + `hook_score_c2p` + `hook_score_p2c`, all scaled.

    `cfg.relative.terms` says which of the last two there are.
    """

    hook_score_c2c: HookPoint
    hook_score_c2p: HookPoint
    hook_score_p2c: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        relative = cfg.relative
        if relative is None:
            raise ConfigError('mixer="disentangled" needs relative, the settings of its positions, got None.')
        if relative.n_buckets and relative.max_distance < relative.n_buckets // 2 + 2:
            raise ConfigError(
                f"relative.max_distance must be at least {relative.n_buckets // 2 + 2} for relative.n_buckets="
                f"{relative.n_buckets}, got {relative.max_distance}."
            )
        self.relative = relative
        super().__init__(cfg, layer)
        if relative.terms:
            self.positions = RelativeTable(cfg, relative)
        self._make_hooks("score_c2c", *(f"score_{term}" for term in relative.terms))

    def _make_projections(self) -> None:
        super()._make_projections()
        cfg = self.cfg
        if not self.relative.key_bias:
            self.k = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=False)

    @property
    def _can_fuse(self) -> bool:
        return not self.relative.terms and not self.hook_score_c2c.is_hooked and super()._can_fuse

    def scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> Float[Tensor, "batch head query key"]:
        """c2c, c2p and p2c, added up in this order, and any further term of the config."""
        scores = self.hook_score_c2c(self.products(q, k))
        for score in self._position_scores(q, k, context):
            scores = scores + score
        for term in self.terms.values():
            scores = scores + term(q, k, context)
        return scores

    def _position_scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> list[Tensor]:
        cfg, relative, scores = self.cfg, self.relative, []
        if not relative.terms:
            return []
        rows = relative_rows(context.query_positions, context.positions, relative.n_buckets, relative.max_distance)
        makers, table = self if relative.share_weights else self.positions, self.positions()
        if "c2p" in relative.terms:
            pos_k = reference.repeat_kv(makers.k(table).unflatten(-1, (cfg.n_kv_heads, -1))[None], cfg.n_heads)[0]
            scores.append(self.hook_score_c2p(content_to_position(q, pos_k, rows) * cfg.attn_scale))
        if "p2c" in relative.terms:
            pos_q = makers.q(table).unflatten(-1, (cfg.n_heads, -1))
            k = reference.repeat_kv(k, cfg.n_heads)
            scores.append(self.hook_score_p2c(position_to_content(k, pos_q, rows) * cfg.attn_scale))
        return scores


class TalkingDisentangledAttention(TalkingHeads, DisentangledAttention):
    """Both: heads mix the sums of their terms, `hook_raw_scores`, and then their weights."""
