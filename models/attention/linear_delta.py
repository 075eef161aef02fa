"""Mixers whose tokens overwrite what the state holds at their key: gated delta networks and Kimi delta attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..config import TransformerConfig
from ..hooks import HookPoint
from ..kernels.linear import delta
from ..norms import widened
from .attention import Attention, Inputs
from .context import AttentionContext
from .linear_gated import start_dynamics
from .low_rank import low_rank
from .recurrent import Recurrent

EPS = 1e-6
"""Added to the squared length of a query or key before it is divided by its length."""


class GatedDelta(Recurrent):
    """The gated delta rule (Yang et al. 2024, arXiv 2412.06464; Qwen3-Next, OLMo Hybrid), with one decay per head.

    Queries and keys have unit length when they meet. `hook_beta` is how much of what the state holds at its key a token
    replaces: 1 replaces all of it, 2 (`linear.max_beta`) turns it around. `hook_decay` is -rate softplus(x W + b).
    """

    rule = delta
    own_hooks = ("decay", "beta", "state")
    hook_beta: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.decay = low_rank(cfg.d_model, self.n_decays, self.linear.decay_rank)
        self.beta = nn.Linear(cfg.d_model, cfg.n_heads, bias=False)
        self.log_rate = nn.Parameter(torch.empty(cfg.n_heads))
        self.decay_bias = nn.Parameter(torch.empty(self.n_decays))
        start_dynamics(self.log_rate, self.decay_bias)

    @property
    def n_decays(self) -> int:
        """Decays per token."""
        return self.cfg.n_heads

    def dynamics(self, x: Inputs) -> tuple[Tensor, ...]:
        """Decay and strength of every token."""
        step = F.softplus(widened(self.decay(x)) + widened(self.decay_bias)).unflatten(-1, (self.cfg.n_heads, -1))
        decay = self.hook_decay(-step * widened(self.log_rate).exp()[:, None])
        return decay, self.hook_beta(self.linear.max_beta * torch.sigmoid(widened(self.beta(x))))

    def prepare(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """Unit length, after the steps of the config; then the queries are scaled."""
        q, k = Attention.prepare(self, q, k, context)
        return unit_length(q) * self.cfg.attn_scale, unit_length(k)

    def weights(self, q: Tensor, k: Tensor, rest: Sequence[Tensor]) -> Float[Tensor, "batch head query key"]:
        """The layer as a matrix on its values, hooked."""
        return self.hook_pattern(delta.matrix_in_chunks(q, k, *rest).to(q.dtype))


class KimiDelta(GatedDelta):
    """Kimi delta attention (arXiv 2510.26692): a decay of its own for each dimension of the keys."""

    @property
    def n_decays(self) -> int:
        """Decays per token."""
        return self.cfg.n_heads * self.cfg.d_head


def unit_length(x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
    """x over its length, at least in float32."""
    x = widened(x)
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + EPS)
