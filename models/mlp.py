"""The MLP: plain `act(x W_in) W_out`, or gated `(act(x W_gate) * x W_in) W_out` (Shazeer 2020, arXiv 2002.05202)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .config import TransformerConfig
from .hooks import HookPoint

ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


class MLP(nn.Module):
    """`hook_pre` is what the activation sees, `hook_pre_linear` the factor that it gates, `hook_post` what W_out reads.

    place: where it sits in its block, as `AXES` names it.
    """

    def __init__(self, cfg: TransformerConfig, place: str = "mlp") -> None:
        super().__init__()
        self.activation = ACTIVATION_FUNCTIONS[cfg.activation]
        self.up = nn.Linear(cfg.d_model, cfg.d_mlp, bias=cfg.mlp_bias)
        self.down = nn.Linear(cfg.d_mlp, cfg.d_model, bias=cfg.mlp_bias)
        self.hook_pre = HookPoint(f"{place}.hook_pre")
        self.hook_post = HookPoint(f"{place}.hook_post")

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        return self.down(self.hook_post(self.activation(self.hook_pre(self.up(x)))))

    @property
    def W_in(self) -> Float[Tensor, "d_model d_mlp"]:
        """A view: x @ W_in is what enters the hidden layer."""
        return self.up.weight.T

    @property
    def W_out(self) -> Float[Tensor, "d_mlp d_model"]:
        """A view: post @ W_out is what the MLP writes."""
        return self.down.weight.T


class GatedMLP(MLP):
    """The gated form: the activation is on the gate, and `hook_pre` with it."""

    def __init__(self, cfg: TransformerConfig, place: str = "mlp") -> None:
        super().__init__(cfg, place)
        self.gate = nn.Linear(cfg.d_model, cfg.d_mlp, bias=cfg.mlp_bias)
        self.hook_pre_linear = HookPoint(f"{place}.hook_pre_linear")

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        gated = self.activation(self.hook_pre(self.gate(x))) * self.hook_pre_linear(self.up(x))
        return self.down(self.hook_post(gated))

    @property
    def W_gate(self) -> Float[Tensor, "d_model d_mlp"]:
        """A view: x @ W_gate is what the activation sees."""
        return self.gate.weight.T
