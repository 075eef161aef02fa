"""Differential attention (Ye et al. 2024, arXiv 2410.05258): each head subtracts its second pattern from its first."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..errors import ConfigError
from ..hooks import HookPoint
from ..kernels import reference
from ..kernels.normalisers import differential_pattern, lambda_start
from ..norms import widened
from .attention import Attention
from .context import AttentionContext
from .normaliser import Normaliser
from .qk_steps import QK_STEPS

Maps = Float[Tensor, "batch map query key"]


class Difference(Normaliser):
    """A normaliser of twice as many maps as heads: each head's first pattern less lambda times its second.

    `hook_lambda` [1] is exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init, the same for all heads.
    """

    lambda_q1: nn.Parameter
    lambda_k1: nn.Parameter
    lambda_q2: nn.Parameter
    lambda_k2: nn.Parameter

    def __init__(self, inner: Normaliser, layer: int, d_half: int) -> None:
        super().__init__()
        self.inner, self.layer, self.fusable = inner, layer, inner.fusable
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            setattr(self, name, nn.Parameter(0.1 * torch.randn(d_half)))
        self.hook_lambda = HookPoint("attn.hook_lambda")

    @property
    def factor(self) -> Float[Tensor, "1"]:
        """lambda, hooked."""
        first = torch.exp((widened(self.lambda_q1) * widened(self.lambda_k1)).sum())
        second = torch.exp((widened(self.lambda_q2) * widened(self.lambda_k2)).sum())
        return self.hook_lambda((first - second + lambda_start(self.layer))[None])

    def forward(self, scores: Maps) -> Float[Tensor, "batch head query key"]:
        return differential_pattern(self.inner(scores), self.factor)


class DifferentialAttention(Attention):
    """Pattern: softmax(q1 k1) - lambda softmax(q2 k2), signed, each row summing to 1 - lambda.

    A head's query and key, d_head wide, hold the first of the pair and then the second, each d_head / 2 wide and rotated by
    itself; `cfg.attn_scale` is meant for these halves. `hook_attn_scores` has a map more for every head: those of the first of
    each pair, head by head, and then those of the second.
    """

    signed_pattern = True

    normaliser: Difference

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        if cfg.d_head % 2:
            raise ConfigError(f"mixer='differential' halves d_head, which must be even, got {cfg.d_head}.")
        if cfg.qk_norm != "none" or cfg.score_terms:
            raise ConfigError("mixer='differential' has no qk_norm and no score_terms: both speak of one query per head.")
        super().__init__(cfg, layer)
        if next(self.normaliser.parameters(), None) is not None:
            raise ConfigError(f"mixer='differential' has two maps per head, but normaliser={cfg.normaliser!r} weights for one.")
        self.normaliser = Difference(self.normaliser, layer, cfg.d_head // 2)
        self.hook_attn_scores = HookPoint("attn.hook_paired_scores")

    def prepare(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """The steps that the config names, on each half of every head."""
        if not self.cfg.qk_steps:
            return q, k
        q, k = _firsts_and_seconds(q), _firsts_and_seconds(k)
        for name in self.cfg.qk_steps:
            q, k = QK_STEPS[name](self, q, k, context)
        return self.hook_rot_q(_side_by_side(q)), self.hook_rot_k(_side_by_side(k))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Float[Tensor, "batch pos head d_value"]:
        """pattern @ v, in two fused calls where no hook needs a pattern."""
        if self._can_fuse:
            first, second = (self._fused(*half, v, context) for half in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True))
            return first - self.normaliser.factor.to(v.dtype) * second
        return super().mix(_firsts_and_seconds(q), _firsts_and_seconds(k), v, context)

    def masked_scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> Maps:
        """Both maps of every head, masked alike."""
        scores, mask = reference.capped(self.scores(q, k, context), self.cfg.attn_softcap), context.mask(self.cfg)
        if mask is not None and mask.shape[1] > 1:
            mask = mask.repeat(1, 2, 1, 1)
        return reference.masked(scores, mask)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Float[Tensor, "batch pos head d_value"]:
        # Zeros beside queries and keys change no score; kernels that build no [query, key] tensor want all widths equal.
        pad = (0, max(0, v.shape[-1] - q.shape[-1]))
        return self.fused_mix(F.pad(q, pad), F.pad(k, pad), v, context)


def _firsts_and_seconds(x: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos two_heads half"]:
    """The first halves of all heads, as heads of their own, and then the second halves."""
    return x.unflatten(-1, (2, -1)).transpose(2, 3).flatten(2, 3)


def _side_by_side(x: Float[Tensor, "batch pos two_heads half"]) -> Float[Tensor, "batch pos head d_head"]:
    return x.unflatten(2, (2, -1)).transpose(2, 3).flatten(3)
