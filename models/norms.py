"""LayerNorm (Ba et al. 2016, arXiv 1607.06450), RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467), RMSNorm with gain 1 + w.

All are `(x - centre) / scale * gain + bias`; statistics are taken in float32 whatever the model's dtype.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .config import TransformerConfig
from .hooks import HookPoint

CENTRED = ("layer_norm",)


def widened(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half-precision tensors as float32, others unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def norm_scale(x: Float[Tensor, "*axes dim"], eps: float) -> Float[Tensor, "*axes 1"]:
    """What a norm divides by: sqrt(mean(x^2) + eps) over the last axis; centre x first for LayerNorm."""
    return (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


class Norm(nn.Module):
    """A norm over the last axis, with `hook_scale` and `hook_normalized`. The fused kernel runs unless the scale is hooked."""

    def __init__(self, kind: str, dim: int, eps: float, has_bias: bool = True) -> None:
        super().__init__()
        self.kind, self.dim, self.eps = kind, dim, eps
        self.weight = nn.Parameter(torch.zeros(dim) if kind == "rms_norm_offset" else torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if kind in CENTRED and has_bias else None
        self.hook_scale = HookPoint("hook_scale")
        self.hook_normalized = HookPoint("hook_normalized")

    @property
    def is_hooked(self) -> bool:
        """Whether anything reads or edits its hooks."""
        return self.hook_scale.is_hooked or self.hook_normalized.is_hooked

    @property
    def is_in_graph(self) -> bool:
        """Whether something attached edits them, or wants gradients with respect to them."""
        return self.hook_scale.is_in_graph or self.hook_normalized.is_in_graph

    @property
    def gain(self) -> Float[Tensor, " dim"]:
        """What the normalised vector is multiplied by."""
        weight = widened(self.weight)
        return 1 + weight if self.kind == "rms_norm_offset" else weight

    def forward(self, x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
        out = self._explicit(x) if self.hook_scale.is_hooked else self.plain(x)
        return self.hook_normalized(out)

    def plain(self, x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
        """The norm without its hooks, by a fused kernel."""
        if self.kind in CENTRED:
            bias = None if self.bias is None else widened(self.bias)
            return F.layer_norm(widened(x), (self.dim,), self.gain, bias, self.eps).to(x.dtype)
        return F.rms_norm(widened(x), (self.dim,), self.gain, self.eps).to(x.dtype)

    def _explicit(self, x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
        centred = self.centred(x)
        scale = self.hook_scale(norm_scale(centred, self.eps))
        out = centred / scale * self.gain
        return (out if self.bias is None else out + widened(self.bias)).to(x.dtype)

    def centred(self, x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
        """The input, at least in float32, less its mean where the norm removes it."""
        x = widened(x)
        return x - x.mean(-1, keepdim=True) if self.kind in CENTRED else x


class NoNorm(nn.Module):
    """The identity, where a model has no norm; there is no scale to hook."""

    is_hooked = is_in_graph = False

    def forward(self, x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
        return x

    def plain(self, x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
        return x


class Shared:
    """A norm whose output is at hand."""

    def __init__(self, norm: Norm | NoNorm, normed: Float[Tensor, "*axes dim"]) -> None:
        self.plain, self.normed = norm.plain, normed
        self.is_hooked, self.is_in_graph = norm.is_hooked, norm.is_in_graph

    def __call__(self, x: Float[Tensor, "*axes dim"]) -> Float[Tensor, "*axes dim"]:
        return self.normed


def make_norm(cfg: TransformerConfig, dim: int | None = None) -> Norm | NoNorm:
    """The norm that a config names, over d_model or another number of dimensions."""
    return NoNorm() if cfg.norm == "none" else Norm(cfg.norm, dim or cfg.d_model, cfg.norm_eps, cfg.norm_bias)
