"""The relative position buckets of T5 (Raffel et al. 2020, arXiv 1910.10683, section 2.1).

Half of the buckets stand for one distance each; the other half cover logarithmically growing ranges, up to a largest
distance that all further ones share. A model that looks both ways gives each direction half of the buckets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..config import RelativeConfig, TransformerConfig
from ..hooked import Part
from ..hooks import HookPoint

if TYPE_CHECKING:
    from ..attention.context import AttentionContext


def relative_buckets(
    offset: Int[Tensor, "*axes"], n_buckets: int, max_distance: int, bidirectional: bool
) -> Int[Tensor, "*axes"]:
    """The bucket, 0 .. n_buckets - 1, of each offset.

    offset: key position less query position, in tokens.
    max_distance: distances from here on, in tokens, share the last bucket.
    bidirectional: later keys have buckets of their own, the upper half; otherwise they all fall into bucket 0, as does the
        query itself, since a causal mask hides them.
    """
    later = torch.zeros_like(offset)
    distance = -offset
    if bidirectional:
        n_buckets //= 2
        later, distance = (offset > 0).to(offset.dtype) * n_buckets, offset.abs()
    distance = distance.clamp(min=0)
    return later + torch.where(distance < n_buckets // 2, distance, _logarithmic(distance, n_buckets, max_distance))


def _logarithmic(distance: Int[Tensor, "*axes"], n_buckets: int, max_distance: int) -> Int[Tensor, "*axes"]:
    """Buckets n_buckets/2 .. n_buckets - 1 for distances from n_buckets/2 on."""
    exact = n_buckets // 2
    # In float32, as the models were trained: at the edge of a bucket float64 may round to the other side.
    growth = torch.log(distance.clamp(min=exact).float() / exact) / math.log(max_distance / exact)
    return (exact + (growth * (n_buckets - exact)).to(distance.dtype)).clamp(max=n_buckets - 1)


class T5Bias(Part):
    """A learned number per bucket and head, added to the scores; positions count real tokens only.

    `table` [bucket, head] is one parameter for all layers of a stack, where `cfg.relative.shared` says so; `hook_t5_bias` is
    each layer's own use of it.
    """

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.relative = cfg.relative or RelativeConfig()
        self.bidirectional = not cfg.causal
        self.shared_parameters = ("table",) if self.relative.shared else ()
        self.table = nn.Parameter(torch.zeros(self.relative.n_buckets, cfg.n_heads))
        self.hook_t5_bias = HookPoint("attn.hook_t5_bias")

    def forward(self, q: Tensor, k: Tensor, context: AttentionContext) -> Float[Tensor, "batch head query key"]:
        """The bias of each query and key."""
        bias = F.embedding(self._buckets(context), self.table).permute(0, 3, 1, 2)
        return self.hook_t5_bias(bias.expand(q.shape[0], -1, -1, -1))

    def _buckets(self, context: AttentionContext) -> Int[Tensor, "#batch query key"]:
        """Found once for all layers."""
        key = ("t5_buckets", self.relative.n_buckets, self.relative.max_distance)
        if key not in context.shared:
            offset = context.positions[:, None, :] - context.query_positions[:, :, None]
            context.shared[key] = relative_buckets(
                offset, self.relative.n_buckets, self.relative.max_distance, self.bidirectional
            )
        return context.shared[key]
