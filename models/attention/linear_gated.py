"""Mixers whose state decays and is added to: retention, lightning attention, Mamba-2."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..hooks import HookPoint
from ..kernels.linear.decays import FIXED_DECAYS
from ..norms import widened
from .attention import Inputs
from .recurrent import Recurrent


class Retention(Recurrent):
    """A decay fixed per head (RetNet, Sun et al. 2023, arXiv 2307.08621; lightning attention, Qin et al. 2024, arXiv 2401.04658).

    `cfg.linear.decay` says which. Weights are signed and have no row sum.
    """

    @property
    def readers(self) -> dict[str, int]:
        """As softmax attention, unless out steps read the same input."""
        return {} if self.out_steps else self.n_projected

    def dynamics(self, x: Inputs) -> tuple[Tensor, ...]:
        """The same decay for every token."""
        fixed = FIXED_DECAYS[self.linear.decay](self.cfg.n_heads, self.layer, self.cfg.n_layers).to(x.device, widened(x).dtype)
        return (self.hook_decay(fixed[:, None].expand(*x.shape[:2], -1, 1)),)


class Mamba2(Recurrent):
    """State-space duality (Mamba-2, Dao & Gu 2024, arXiv 2405.21060): C, B and x are queries, keys and values.

    A token's step dt = softplus(x W_dt + b) says how strongly it writes (`hook_beta`) and, times a rate per head, how much it
    makes the state decay (`hook_decay`). D v, added to what the queries read, bypasses the pattern and `hook_mixed`.
    """

    own_hooks = ("decay", "beta", "state")
    hook_beta: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.dt = nn.Linear(cfg.d_model, cfg.n_heads, bias=True)
        self.log_rate = nn.Parameter(torch.empty(cfg.n_heads))
        self.D = nn.Parameter(torch.ones(cfg.n_heads))
        start_dynamics(self.log_rate, self.dt.bias)

    def dynamics(self, x: Inputs) -> tuple[Tensor, ...]:
        """Decay and strength, both from the step."""
        dt = F.softplus(widened(self.dt(x)))
        return self.hook_decay((-dt * widened(self.log_rate).exp())[..., None]), self.hook_beta(dt)

    def skip(self, mixed: Tensor, v: Tensor) -> Float[Tensor, "batch pos head d_value"]:
        return mixed + self.D[:, None] * v


def start_dynamics(log_rate: nn.Parameter, dt_bias: nn.Parameter) -> None:
    """Start as Mamba-2 does: rates between 1 and 16, steps between 0.001 and 0.1, both spread evenly on a log scale or nearly."""
    nn.init.uniform_(log_rate, 0.0, 2.77)
    nn.init.uniform_(dt_bias, -6.9, -2.3)  # softplus(b) is close to exp(b) here
