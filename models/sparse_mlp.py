"""A gated MLP few of whose gates are open: those that stand out among a token's (You et al. 2025, arXiv 2506.06644; Gemma 3n)."""

from __future__ import annotations

from statistics import NormalDist

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from .config import TransformerConfig
from .hooks import HookPoint
from .mlp import GatedMLP


class SparseGatedMLP(GatedMLP):
    """Gates below the quantile `cfg.mlp_sparsity` of a normal distribution with their own mean and variance are cut to 0.

    `hook_uncut` is what the gate weights compute, `hook_pre` what the activation sees: how far each exceeds the cut.
    """

    def __init__(self, cfg: TransformerConfig, place: str = "mlp") -> None:
        super().__init__(cfg, place)
        self.deviations = NormalDist().inv_cdf(cfg.mlp_sparsity)
        self.hook_uncut = HookPoint(f"{place}.hook_uncut")

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        gate = self.hook_uncut(self.gate(x))
        cut = gate.mean(-1, keepdim=True) + gate.std(-1, keepdim=True, correction=0) * self.deviations
        gated = self.activation(self.hook_pre(F.relu(gate - cut))) * self.hook_pre_linear(self.up(x))
        return self.down(self.hook_post(gated))
