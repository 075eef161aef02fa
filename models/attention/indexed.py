"""DeepSeek sparse attention (arXiv 2512.02556, 2025): latent attention to the keys that a small indexer ranks first."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..cache import KVCache
from ..config import TransformerConfig
from ..errors import ConfigError, HookError
from ..hooked import Part
from ..hooks import HookPoint
from ..kernels import reference
from ..kernels.selection import choose, indexer_scores
from ..positions.rotary import rotate
from .attention import Inputs
from .context import AttentionContext
from .latent import Latent, LatentAttention
from .selected import Choice, SelectedAttention, ranking, sparse_config, visible


class Indices(NamedTuple):
    """What the indexer compares. One selector serves all heads, unless inputs are split by head."""

    q: Float[Tensor, "batch query selector index_head d_index"]
    k: Float[Tensor, "batch key selector d_index"]
    weights: Float[Tensor, "batch query selector index_head"]


class Indexer(Part):
    """Small heads that share one key, whose rectified scores are added up with weights that the query's token gives.

    Its leading dimensions are rotated as the layer's own are, in the layout `sparse.index_layout`. `hook_indexer_scores` is -inf
    where the mask hides a key. Scores only rank keys, so no gradient reaches them.
    """

    hook_indexer_scores: HookPoint

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.cfg, self.sparse = cfg, sparse_config(cfg, "index_heads", "d_index")
        if cfg.latent is None or not cfg.latent.q_rank:
            raise ConfigError(f"mixer={cfg.mixer!r} needs latent.q_rank: the indexer reads the latent of queries.")
        if self.sparse.d_index < cfg.d_rotary:
            raise ConfigError(f"sparse.d_index must be at least rotary.dim={cfg.d_rotary}, got {self.sparse.d_index}.")
        self.q = nn.Linear(cfg.latent.q_rank, self.sparse.index_heads * self.sparse.d_index, bias=False)
        self.k = nn.Linear(cfg.d_model, self.sparse.d_index, bias=False)
        self.k_norm = nn.LayerNorm(self.sparse.d_index, eps=1e-6)
        self.weights = nn.Linear(cfg.d_model, self.sparse.index_heads, bias=False)
        self.hook_indexer_scores = HookPoint("attn.hook_indexer_scores")

    def read(self, q_latent: Latent, q_input: Inputs, k_input: Inputs, context: AttentionContext) -> Indices:
        """Queries, keys and weights of the new tokens."""
        q = self.q(q_latent).unflatten(-1, (self.sparse.index_heads, -1))
        k, weights = self.k_norm(self.k(k_input)), self.weights(q_input)
        if q_input.dim() == 3:
            q, weights = q[:, :, None], weights[:, :, None]
        k = k[:, :, None] if k_input.dim() == 3 else k
        scale = (self.sparse.index_heads * self.sparse.d_index) ** -0.5
        return Indices(self._rotated(q.flatten(2, 3), context).view_as(q), self._rotated(k, context), weights * scale)

    def _rotated(self, x: Tensor, context: AttentionContext) -> Tensor:
        rotary = self.cfg.rotary
        if rotary is None or not self.cfg.d_rotary:
            return x
        return rotate(x, context.tables(rotary, self.sparse.d_index, x.dtype), self.sparse.index_layout)

    def choose(self, indices: Indices, context: AttentionContext) -> Choice:
        """The `sparse.n_selected` keys of each query that score highest."""
        mask = visible(context, self.cfg)
        scores = ranking(self.hook_indexer_scores, reference.masked(indexer_scores(*indices), mask))
        return choose(scores, self.sparse.n_selected, mask)


class IndexedLatentAttention(SelectedAttention, LatentAttention):
    """Latent attention to the `sparse.n_selected` keys that the indexer chooses for each query, the same in all heads.

    With `sparse.reuse` the layer has no indexer and sees what the last layer with one chose (GLM-5).
    """

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.indexer = None if sparse_config(cfg, "n_selected").reuse else Indexer(cfg)

    @property
    def reuses_selection(self) -> bool:
        """Whether it sees the keys that an earlier layer chose."""
        return self.indexer is None

    def project(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.indexer is None:
            return super().project(q_input, k_input, v_input, context)
        q_latent = self.q_latent(q_input)
        context.shared["indices"] = self.indexer.read(q_latent, q_input, k_input, context)
        return self.hook_q(self.expand_queries(q_latent)), *self.keys_and_values(k_input, v_input)

    def remember(self, k: Tensor, v: Tensor, context: AttentionContext, cache: KVCache | None) -> tuple[Tensor, Tensor]:
        if cache is not None and self.indexer is not None:
            indices, past = context.shared["indices"], cache.state(self.layer).get("index_keys")
            keys = indices.k if past is None else _joined(past, indices.k)
            cache.set_state(self.layer, {"index_keys": keys})
            context.shared["indices"] = indices._replace(k=keys)
        return super().remember(k, v, context, cache)

    def choose(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        if self.indexer is None:
            if "selection" not in context.shared:
                raise HookError(f"layer {self.layer} sees the keys that an earlier layer chose; start_at_layer skips that layer.")
            return context.shared["selection"]
        return self.indexer.choose(context.shared.pop("indices"), context)

    def select(self, q: Tensor, k: Tensor, context: AttentionContext) -> Tensor:
        selection = super().select(q, k, context)
        if self.indexer is not None:
            context.shared["selection"] = selection
        return selection


def _joined(past: Tensor, new: Tensor) -> Float[Tensor, "batch key selector d_index"]:
    """Keys of the past and new ones, for as many selectors as either has."""
    n = max(past.shape[2], new.shape[2])
    return torch.cat([keys.expand(-1, -1, n, -1) for keys in (past, new)], 1)
