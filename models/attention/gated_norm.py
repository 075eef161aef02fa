"""The norm and gate that follow a linear mixer, in whose outputs nothing keeps the scale fixed."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..config import LinearConfig, TransformerConfig
from ..errors import ConfigError
from ..hooks import HookPoint
from ..norms import norm_scale, widened
from .low_rank import low_rank
from .out_step import OutStep

GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}
"""By the name that `cfg.linear.gate_activation` gives."""

Mixed = Float[Tensor, "batch pos head d_value"]


class GatedNorm(OutStep):
    """RMSNorm, then a factor activation(x W_g), `hook_gate`; or, in Mamba-2, the factor first.

    The norm is each head's own, with one gain for all heads, or, with `linear.norm_groups`, that of so many equal parts of the
    full width, with a gain for each dimension: a group of several heads then makes each depend on the others.
    """

    reads_input = True

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        linear = cfg.linear or LinearConfig()
        width = cfg.n_heads * cfg.d_value
        if linear.norm_groups and width % linear.norm_groups:
            raise ConfigError(f"linear.norm_groups must divide n_heads * d_value={width}, got {linear.norm_groups}.")
        self.gate = low_rank(cfg.d_model, width, linear.gate_rank)
        self.weight = nn.Parameter(torch.ones(width if linear.norm_groups else cfg.d_value))
        self.groups, self.eps = linear.norm_groups or cfg.n_heads, linear.norm_eps or cfg.norm_eps
        self.activation, self.gate_first = GATES[linear.gate_activation], linear.gate_first
        self.hook_gate = HookPoint("attn.hook_gate")

    def forward(self, z: Mixed, x: Float[Tensor, "batch pos d_model"], context: object) -> Mixed:
        gate = widened(self.hook_gate(self.activation(self.gate(x)).unflatten(-1, z.shape[2:])))
        out = self._normed(widened(z) * gate) if self.gate_first else self._normed(widened(z)) * gate
        return out.to(z.dtype)

    def _normed(self, z: Mixed) -> Mixed:
        grouped = z.flatten(2).unflatten(2, (self.groups, -1))
        normed = (grouped / norm_scale(grouped, self.eps)).reshape(z.shape)
        return normed * widened(self.weight).view(-1, z.shape[-1])
