"""The score term of BigBird (Zaheer et al. 2020, arXiv 2007.14062): how often each key counts.

Its published code gathers blocks side by side, so a block that is gathered twice counts twice in the softmax. Here a key stands
once in scores and pattern, and the logarithm of its count is a score term: exp(score + log count) = count * exp(score).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ..config import TransformerConfig
from ..hooked import Part
from .context import AttentionContext
from .sparse_masks import key_counts


class KeyCounts(Part):
    """log of how often a key counts: 0 where once."""

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg = cfg

    def forward(self, q: Tensor, k: Tensor, context: AttentionContext) -> Float[Tensor, "#batch #head query key"]:
        return key_counts(self.cfg, context).clamp(min=1).to(q.dtype).log()
