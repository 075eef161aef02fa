"""ALiBi (Press et al. 2022, arXiv 2108.12409): no position enters the stream; scores fall with distance, at a slope per head."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..config import AlibiConfig, TransformerConfig
from ..hooked import Part
from ..hooks import HookPoint
from ..norms import widened

if TYPE_CHECKING:
    from ..attention.context import AttentionContext

Bias = Float[Tensor, "#batch head query key"]


def alibi_slopes(n_heads: int, max_bias: float = 8.0) -> Float[Tensor, " head"]:
    """How much each head's scores lose per token of distance, in nats, float64.

    For n heads, a power of two, 2^(-max_bias k / n) for k = 1 .. n. Other counts take the slopes of the power of two below, then
    the 1st, 3rd, 5th .. of twice that power, as the authors' code does.
    """
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-max_bias * k / power) for k in range(1, power + 1)]
    between = [2 ** (-max_bias * k / (2 * power)) for k in range(1, 2 * power, 2)]
    return torch.tensor(slopes + between[: n_heads - power], dtype=torch.float64)


def alibi_bias(
    slopes: Float[Tensor, " head"],
    queries: Int[Tensor, "#batch query"],
    keys: Int[Tensor, "#batch key"],
    is_rounded: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Bias:
    """-slope * |query - key|, from token positions: 0 on the diagonal, whichever form a checkpoint was trained with.

    Trained models often add slope * key instead, which differs by a constant per row that the softmax takes out again.
    is_rounded: slopes, and their products with positions, are rounded to bfloat16, as Falcon's were in training. The products
        are then taken at each position and subtracted, since rounding does not commute with the difference.
    """
    if not is_rounded:
        distance = (queries[:, None, :, None] - keys[:, None, None, :]).abs()
        return -(slopes.to(keys.device, dtype)[:, None, None] * distance)
    rounded = slopes.to(keys.device, torch.bfloat16)[:, None]
    depth, height = ((rounded * positions[:, None, :]).to(dtype) for positions in (queries, keys))
    return -(depth[..., :, None] - height[..., None, :]).abs()


class Alibi(Part):
    """ALiBi as a term of the scores, behind `hook_alibi`."""

    hook_alibi: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg, self.options = cfg, cfg.alibi or AlibiConfig()
        self.hook_alibi = HookPoint("attn.hook_alibi")

    def forward(self, q: Tensor, k: Tensor, context: AttentionContext) -> Bias:
        slopes = alibi_slopes(self.cfg.n_heads, self.options.max_bias)
        bias = alibi_bias(slopes, context.query_positions, context.positions, self.options.is_rounded, widened(q).dtype)
        if self.options.is_scaled:
            bias = bias * self.cfg.attn_scale
        if self.hook_alibi.is_hooked:
            bias = self.hook_alibi(bias.expand(q.shape[0], -1, -1, -1))
        return bias.to(q.dtype)
