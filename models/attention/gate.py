"""A gate on what each head found, made from what its query is made of."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..errors import HookError
from ..hooks import HookPoint
from .context import AttentionContext
from .out_step import OutStep
from .projection import project

Z = Float[Tensor, "batch pos head d_value"]


class Gate(OutStep):
    """z * sigmoid(x W), a gate for every head and dimension (Qiu et al. 2025, arXiv 2505.06708; Qwen3-Next, AFMoE).

    `hook_gate` is the gate, in (0, 1). `hook_effective_pattern` is a view: the pattern times its query's gate, averaged over
    the head's dimensions, which is how much of each key's value goes on to the output weights.
    """

    reads_input = True

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.n_heads = cfg.n_heads
        self.proj = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_value, bias=cfg.qkv_bias)
        self.hook_gate = HookPoint("attn.hook_gate")
        self.hook_effective_pattern = HookPoint("attn.hook_effective_pattern", read_only=True)

    @property
    def wants_pattern(self) -> bool:
        return self.hook_effective_pattern.is_hooked

    def forward(self, z: Z, x: Float[Tensor, "batch pos *head d_model"], context: AttentionContext) -> Z:
        gate = self.hook_gate(torch.sigmoid(project(x, self.proj, self.n_heads)))
        if self.wants_pattern:
            self.hook_effective_pattern(self._pattern(context) * gate.mean(-1).transpose(1, 2)[..., None])
        return z * gate

    def _pattern(self, context: AttentionContext) -> Float[Tensor, "batch head query key"]:
        if ("pattern", self.layer) not in context.shared:
            raise HookError(f"'{self.hook_effective_pattern.name}' has nothing to show: this kind of layer forms no pattern.")
        return context.shared["pattern", self.layer]
