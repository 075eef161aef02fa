"""Talking heads (Shazeer et al. 2020, arXiv 2003.02436): heads mix their scores before the normaliser and their weights after."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..hooks import HookPoint
from ..kernels.normalisers import mix_heads
from .attention import Attention
from .context import AttentionContext
from .normaliser import Normaliser

Maps = Float[Tensor, "batch head query key"]


class MixedWeights(Normaliser):
    """A normaliser, and then every head's weights a sum of all heads' weights. `hook_unmixed_pattern` lies between the two."""

    def __init__(self, inner: Normaliser, n_heads: int) -> None:
        super().__init__()
        self.inner = inner
        self.weight = nn.Parameter(torch.eye(n_heads))
        self.hook_unmixed_pattern = HookPoint("attn.hook_unmixed_pattern")

    def forward(self, scores: Maps) -> Maps:
        return mix_heads(self.hook_unmixed_pattern(self.inner(scores)), self.weight)


class TalkingHeads(Attention):
    """Three maps per head: `hook_raw_scores`, the head's own scores; `hook_attn_scores`, mixed, as the softmax sees them; and
    `hook_pattern`, the mixed weights, which multiply the values. Rows of the last need not sum to 1, and entries may be negative.

    Both mixtures start as the identity, where this is ordinary attention.
    """

    signed_pattern = True
    mixes_heads = True

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.mix_scores = nn.Parameter(torch.eye(cfg.n_heads))
        self.normaliser = MixedWeights(self.normaliser, cfg.n_heads)
        self.hook_raw_scores = HookPoint("attn.hook_raw_scores")

    def scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> Maps:
        """The mixed scores, before the mask: no head's mask leaks into another's."""
        return mix_heads(self.hook_raw_scores(super().scores(q, k, context)), self.mix_scores)
