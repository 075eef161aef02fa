"""Softmax with a learned sink: each head may spend part of its attention on nothing (gpt-oss, arXiv 2508.10925).

Without one, heads make a sink of the first tokens (Xiao et al. 2023, arXiv 2309.17453).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..hooks import HookPoint
from ..kernels.reference import softmax_pattern
from ..norms import widened
from .normaliser import Normaliser

Scores = Float[Tensor, "batch head query key"]


class SinkSoftmax(Normaliser):
    """exp(score) over its sum and exp(sink): a row sums to 1 less `hook_sink`, the share of the sink, [batch, head, query, 1].

    Editing the share rescales its row, which keeps the keys' weights in proportion.
    """

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(cfg.n_heads))
        self.hook_sink = HookPoint("attn.hook_sink")

    def forward(self, scores: Scores) -> Scores:
        share = self.hook_sink(sink_share(scores, self.sink))
        return softmax_pattern(scores) * (1 - share)

    @property
    def fused_sink(self) -> Float[Tensor, " head"] | None:
        """What a fused kernel needs to do the same; None while the share is hooked."""
        return None if self.hook_sink.is_hooked else self.sink


def sink_share(scores: Scores, sink: Float[Tensor, " head"]) -> Float[Tensor, "batch head query 1"]:
    """What a key with the score `sink` would get of each row: all of a row that sees no key."""
    wide = widened(scores)
    empty = (wide == float("-inf")).all(-1, keepdim=True)
    total = wide.masked_fill(empty, 0.0).logsumexp(-1, keepdim=True)
    share = torch.sigmoid(widened(sink)[:, None, None] - total)
    return share.masked_fill(empty, 1.0).to(scores.dtype)
