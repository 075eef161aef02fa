"""What happens to queries and keys before they meet: norms, rotation, temperature. Each step is a function of the layer.

A step takes (attention, q [batch, pos, head, d_head], k [batch, pos, kv_head, d_head], context) and returns q and k.
`cfg.qk_steps` says which a layer has, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import TransformerConfig
from ..norms import CENTRED, norm_scale, widened
from ..positions.rotary import rotate
from .context import AttentionContext
from .normalisers import kernel_of

if TYPE_CHECKING:
    from .attention import Attention


class QKNorm(nn.Module):
    """A norm of queries or keys, without hooks: `hook_q` is its input, and `hook_rot_q` follows it.

    per_head       over one head's dimensions, one gain for all heads      Qwen3, Gemma 3
    own_per_head   over one head's dimensions, a gain for each head        Cohere
    full_width     over all heads together, so that heads are not independent      OLMo 2
    l2             over one head's dimensions, no gain                     Llama 4
    """

    def __init__(self, cfg: TransformerConfig, n_heads: int) -> None:
        super().__init__()
        self.how, self.kind, self.eps = cfg.qk_norm, cfg.qk_norm_kind, cfg.norm_eps
        shapes = {
            "per_head": (cfg.d_head,),
            "own_per_head": (n_heads, cfg.d_head),
            "full_width": (n_heads * cfg.d_head,),
        }
        self.weight = self.bias = None
        if shape := shapes.get(self.how):
            self.weight = nn.Parameter(torch.zeros(shape) if self.kind == "rms_norm_offset" else torch.ones(shape))
            if self.kind in CENTRED and cfg.norm_bias:
                self.bias = nn.Parameter(torch.zeros(shape))

    @property
    def gain(self) -> Tensor | None:
        """What the normalised vector is multiplied by: [d_head], [head, d_head] or [head * d_head]; None for "l2"."""
        if self.weight is None:
            return None
        return 1 + widened(self.weight) if self.kind == "rms_norm_offset" else widened(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, pos, head, d_head]."""
        if self.how == "full_width":
            return self._normed(x.flatten(2)).view_as(x)
        return self._normed(x)

    def _normed(self, x: Tensor) -> Tensor:
        wide = widened(x)
        if self.how != "l2" and self.weight is not None and self.weight.dim() == 1:
            shape, bias = self.weight.shape, None if self.bias is None else widened(self.bias)
            if self.kind in CENTRED:
                return F.layer_norm(wide, shape, self.gain, bias, self.eps).to(x.dtype)
            return F.rms_norm(wide, shape, self.gain, self.eps).to(x.dtype)
        wide = wide - wide.mean(-1, keepdim=True) if self.how != "l2" and self.kind in CENTRED else wide
        out = wide / norm_scale(wide, self.eps)
        out = out if self.gain is None else out * self.gain
        return (out if self.bias is None else out + widened(self.bias)).to(x.dtype)


def qk_norm(attn: Attention, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
    """Henry et al. 2020 (arXiv 2010.04245), and its relatives listed in `QKNorm`."""
    return attn.q_norm(q), attn.k_norm(k)


def rotary(attn: Attention, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
    """Su et al. 2021 (arXiv 2104.09864)."""
    settings = attn.cfg.rotary
    if settings is None:
        return q, k
    tables, first = context.tables(settings, q.shape[-1], q.dtype), attn.first_rotated

    def turned(x: Tensor) -> Tensor:
        rotated = rotate(x[..., first:], tables, settings.layout)
        return torch.cat((x[..., :first], rotated), -1) if first else rotated

    return turned(q), turned(k)


def temperature(attn: Attention, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
    """Queries grow with their position, which keeps attention sharp over long contexts (Llama 4)."""
    settings = attn.cfg.temperature
    if settings is None:
        return q, k
    positions = context.query_positions.double()
    factor = 1 + settings.scale * torch.log1p(torch.floor((positions + settings.offset) / settings.floor_scale))
    return q * factor[..., None, None].to(q.dtype), k


def features(attn: Attention, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
    """What a kernel's inner product sees of queries and keys; most kernels see them as they are."""
    kernel = kernel_of(attn.cfg)
    return kernel.features(q), kernel.features(k)


QK_STEPS: dict[str, Callable[[Attention, Tensor, Tensor, AttentionContext], tuple[Tensor, Tensor]]] = {
    "qk_norm": qk_norm,
    "rotary": rotary,
    "temperature": temperature,
    "features": features,
}
