"""Norms of each head's output by itself."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..hooks import HookPoint
from ..kernels.normalisers import lambda_start
from ..norms import norm_scale, widened
from .context import AttentionContext
from .out_step import OutStep

Z = Float[Tensor, "batch pos head d_value"]


class HeadNorm(OutStep):
    """RMSNorm of each head's z by itself, with one gain for all heads. `hook_head_scale` is what z is divided by."""

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.eps = cfg.norm_eps
        self.hook_head_scale = HookPoint("attn.hook_head_scale")
        self._make_gain(cfg)

    def _make_gain(self, cfg: TransformerConfig) -> None:
        self.weight = nn.Parameter(torch.ones(cfg.d_value))

    @property
    def gain(self) -> Float[Tensor, " d_value"] | float:
        """What normed z is multiplied by."""
        return widened(self.weight)

    def forward(self, z: Z, x: Float[Tensor, "batch pos *head d_model"], context: AttentionContext) -> Z:
        wide = widened(z)
        return (wide / self.hook_head_scale(norm_scale(wide, self.eps)) * self.gain).to(z.dtype)


class DifferentialNorm(HeadNorm):
    """The norm of differential attention: without weights, times 1 - lambda_init of the layer (Ye et al. 2024, 2410.05258)."""

    def _make_gain(self, cfg: TransformerConfig) -> None:
        pass

    @property
    def gain(self) -> float:
        """1 - lambda_init, so that gradients are those of a layer without differences."""
        return 1 - lambda_start(self.layer)
