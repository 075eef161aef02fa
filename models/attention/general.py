"""The general attention mechanism by itself: queries, keys and values of any objects, any kernel, one head or many.

    Q = X^Q W^Q,  K = X^K W^K,  V = X^V W^V,  A_ij = kappa(Q_i, K_j),  Y = (A / row sums of A) V

`kernel_attention` is this as a function of Q, K and V, `GeneralAttention` a module with the projections and hooks. The kernel
exp(<q, k> / sqrt(d_QK)) makes it softmax attention (Vaswani et al. 2017, arXiv 1706.03762).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..config.checks import is_whole
from ..errors import ConfigError, InputError
from ..hooked import HookedModule
from ..hooks import HookPoint, hooked_scores
from ..kernels import reference
from ..kernels.kernel_functions import Elementwise, Kernel, as_kernel, check_on_nonpositive, kernel_pattern


def kernel_attention(
    q: Float[Tensor, "batch query head d_qk"],
    k: Float[Tensor, "batch key head d_qk"],
    v: Float[Tensor, "batch key head d_v"],
    kernel: str | Kernel | Elementwise = "exp",
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    on_nonpositive: str = "raise",
) -> Float[Tensor, "batch query head d_v"]:
    """Y = Z^-1 A V for every head, A of the kernel's weights and Z of their row sums. Rows that see no key give 0.

    kernel: a name of `KERNELS`, a `Kernel`, or a function f of inner products, for kappa(q, k) = f(<q, k>).
    mask: bool [query, key] or [batch or 1, head or 1, query, key], True where a query may see a key. causal: future keys are
        hidden; with fewer queries than keys, the queries are the last positions, so that they can follow stored keys and values.
    on_nonpositive: "raise" an InputError for rows whose sum is not positive, or "report" them in a KernelWarning.
    """
    scores = masked_scores(q, k, as_kernel(kernel), mask, causal)
    return reference.mix_values(kernel_pattern(scores, as_kernel(kernel), check_on_nonpositive(on_nonpositive)), v)


def masked_scores(
    q: Float[Tensor, "batch query head d_qk"],
    k: Float[Tensor, "batch key head d_qk"],
    kernel: Kernel,
    mask: Any,
    causal: bool,
) -> Float[Tensor, "batch head query key"]:
    """Scaled inner products as the kernel's weight function sees them, -inf where masked."""
    scores = reference.dot_products(kernel.features(q), kernel.features(k)) * kernel.scale(q.shape[-1])
    if mask is not None:
        scores = reference.masked(scores, _checked_mask(mask, scores))
    return reference.masked(scores, _past(scores.shape[2], scores.shape[3], scores.device)) if causal else scores


def _past(n_queries: int, n_keys: int, device: torch.device) -> Bool[Tensor, "1 1 query key"]:
    if n_queries > n_keys:
        raise InputError(f"causal attention needs a key for every query, got {n_queries} queries and {n_keys} keys.")
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)[None, None]


def _checked_mask(mask: Any, scores: Tensor) -> Bool[Tensor, "#batch #head query key"]:
    wanted = tuple(scores.shape)
    if not isinstance(mask, Tensor):
        raise InputError(
            f"mask must be a bool tensor of shape {wanted[2:]} or {wanted}, True to keep, got {type(mask).__name__}."
        )
    mask = mask[None, None] if mask.dim() == 2 else mask
    fits = mask.dim() == 4 and all(size in (1, want) for size, want in zip(mask.shape[:2], wanted[:2], strict=True))
    if not fits or mask.shape[2:] != scores.shape[2:] or mask.dtype != torch.bool:
        raise InputError(
            f"mask must be bool of shape {wanted[2:]} or {wanted}, True to keep, got {mask.dtype} of shape {tuple(mask.shape)}."
        )
    return mask


class GeneralAttention(HookedModule):
    """Attention between any objects: their widths may differ, as may d_qk and d_v.

        x_query ─ W_Q ─ hook_q ─┐
        x_key   ─ W_K ─ hook_k ─┴─ hook_attn_scores ─ kernel, row sums ─ hook_pattern ─┐
        x_value ─ W_V ─ hook_v ────────────────────────────────────────────────────────┴─ hook_z ─ W_O ─ out

    d_query, d_key, d_value: widths of the inputs; those of keys and values default to that of queries and that of keys.
    d_qk, d_v: widths of one head's query and key, and of its value. d_out: width of the output; 0 leaves out W_O, and the
    output is the heads' results side by side.
    """

    n_layers = 0

    hook_q: HookPoint
    hook_k: HookPoint
    hook_v: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_z: HookPoint

    def __init__(
        self,
        d_query: Any,
        d_key: Any = None,
        d_value: Any = None,
        *,
        d_qk: Any,
        d_v: Any = None,
        d_out: Any = None,
        n_heads: Any = 1,
        kernel: str | Kernel | Elementwise = "exp",
        bias: bool = False,
        on_nonpositive: str = "raise",
    ) -> None:
        super().__init__()
        d_key = d_query if d_key is None else d_key
        d_value, d_v, d_out = (d_key if d_value is None else d_value), (d_qk if d_v is None else d_v), (d_out or 0)
        sizes = {"d_query": d_query, "d_key": d_key, "d_value": d_value, "d_qk": d_qk, "d_v": d_v, "n_heads": n_heads}
        for name, size in (sizes | {"d_out": d_out or 1}).items():
            if not is_whole(size) or size < 1:
                raise ConfigError(f"{name} must be a positive whole number, got {size!r}.")
        self.n_heads, self.kernel, self.on_nonpositive = n_heads, as_kernel(kernel), check_on_nonpositive(on_nonpositive)
        self.q = nn.Linear(d_query, n_heads * d_qk, bias=bias)
        self.k = nn.Linear(d_key, n_heads * d_qk, bias=bias)
        self.v = nn.Linear(d_value, n_heads * d_v, bias=bias)
        self.o = nn.Linear(n_heads * d_v, d_out, bias=bias) if d_out else nn.Identity()
        for name in ("q", "k", "v", "attn_scores", "pattern", "z"):
            setattr(self, f"hook_{name}", HookPoint(f"attn.hook_{name}"))
        self._name_hook_points()

    def forward(
        self,
        x_query: Any,
        x_key: Any = None,
        x_value: Any = None,
        *,
        mask: Any = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch query d_out"]:
        """The attended values [batch, query, d_out] of x_query [batch, query, d_query], x_key [batch, key, d_key] and x_value
        [batch, key, d_value]. Without x_key this is self-attention; without x_value, values come from what keys come from.

        mask, causal: as in `kernel_attention`. Raises InputError naming an input of the wrong width or length.
        """
        x_key = x_query if x_key is None else x_key
        x_value = x_key if x_value is None else x_value
        for name, x, linear in (("x_query", x_query, self.q), ("x_key", x_key, self.k), ("x_value", x_value, self.v)):
            dtype, width = linear.weight.dtype, linear.in_features
            if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != width or x.dtype != dtype or not x.shape[1]:
                got = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise InputError(f"{name} must be {dtype} [batch, position, {width}] with at least one position, got {got}.")
        if not x_query.shape[0] == x_key.shape[0] == x_value.shape[0] or x_key.shape[1] != x_value.shape[1]:
            shapes = ", ".join(str(tuple(x.shape)) for x in (x_query, x_key, x_value))
            raise InputError(f"inputs must share their batch, and keys and values their length, got shapes {shapes}.")
        q, k, v = (
            hook(linear(x).unflatten(-1, (self.n_heads, -1)))
            for hook, linear, x in ((self.hook_q, self.q, x_query), (self.hook_k, self.k, x_key), (self.hook_v, self.v, x_value))
        )
        scores = hooked_scores(self.hook_attn_scores, masked_scores(q, k, self.kernel, mask, causal))
        pattern = self.hook_pattern(kernel_pattern(scores, self.kernel, self.on_nonpositive))
        return self.o(self.hook_z(reference.mix_values(pattern, v)).flatten(2))
