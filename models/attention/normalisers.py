"""What turns a row of scores into weights.

A normaliser is a `Part`, made as normaliser(cfg, layer), that maps scores [batch, head, query, key], -inf where masked, to the
pattern. A row that sees no key gets weight 0 everywhere. `fusable`: it is the plain softmax, which fused kernels compute.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ..config import TransformerConfig
from ..hooked import Part
from ..kernels.reference import softmax_pattern


class Softmax(Part):
    """exp(score) over its sum: each row sums to 1."""

    fusable = True

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()

    def forward(self, scores: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query key"]:
        return softmax_pattern(scores)


NORMALISERS: dict[str, type[Part]] = {"softmax": Softmax}
