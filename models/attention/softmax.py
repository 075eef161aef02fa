"""The hookable softmax attention: multi-head, grouped or multi-query, with or without rotary positions and QK-norm."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..cache import KVCache
from ..config import TransformerConfig
from ..hooks import HookPoint
from ..kernels import fused, reference
from ..norms import HeadNorm
from ..positions.rotary import rotate
from .context import AttentionContext


class Attention(nn.Module):
    """One attention layer.

        q_input ─ W_Q ─ hook_q ─ QK-norm, rotate ─ hook_rot_q ─┐
        k_input ─ W_K ─ hook_k ─ QK-norm, rotate ─ hook_rot_k ─┴─ hook_attn_scores ─ softmax ─ hook_pattern ─┐
        v_input ─ W_V ─ hook_v ─────────────────────────────────────────────────────────────────────────────┴─ hook_z ─ W_O ─ out

    The two steps between rotation and z run fused, without a [query, key] tensor, unless one of their hooks is in use.
    """

    hook_q: HookPoint
    hook_k: HookPoint
    hook_v: HookPoint
    hook_rot_q: HookPoint
    hook_rot_k: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_z: HookPoint
    hook_result: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer_type, self.rotary = cfg, cfg.layer_types[layer], cfg.rotary_for(layer)
        self.layer = layer
        self.q = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=cfg.qkv_bias)
        self.k = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=cfg.qkv_bias)
        self.v = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=cfg.qkv_bias)
        self.o = nn.Linear(cfg.n_heads * cfg.d_head, cfg.d_model, bias=cfg.out_bias)
        if cfg.qk_norm == "per_head":
            self.q_norm = HeadNorm(cfg.norm, cfg.d_head, cfg.norm_eps)
            self.k_norm = HeadNorm(cfg.norm, cfg.d_head, cfg.norm_eps)
        names = ["q", "k", "v"] + (["rot_q", "rot_k"] if self.rotary else []) + ["attn_scores", "pattern", "z", "result"]
        for name in names:
            setattr(self, f"hook_{name}", HookPoint(f"attn.hook_{name}"))

    def forward(
        self,
        q_input: Float[Tensor, "batch pos *q_head d_model"],
        k_input: Float[Tensor, "batch pos *k_head d_model"],
        v_input: Float[Tensor, "batch pos *v_head d_model"],
        context: AttentionContext,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """What the layer writes. Inputs are shared by all heads, or, where a reader's input is hooked, one per head."""
        cfg = self.cfg
        q = self.hook_q(project(q_input, self.q, cfg.n_heads))
        k = self.hook_k(project(k_input, self.k, cfg.n_kv_heads))
        v = self.hook_v(project(v_input, self.v, cfg.n_kv_heads))
        if cfg.qk_norm == "per_head":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = self._rotate_and_store(q, k, v, context, cache)
        return self._out(self.hook_z(self._mix(q, k, v, context)))

    def _rotate_and_store(
        self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext, cache: KVCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.rotary is not None:
            tables = context.tables(self.rotary, q.dtype)
            q = self.hook_rot_q(rotate(q, tables, self.rotary.layout))
            k = self.hook_rot_k(rotate(k, tables, self.rotary.layout))
        return (q, k, v) if cache is None else (q, *cache.extend(self.layer, k, v))

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Tensor:
        cfg = self.cfg
        if fused.can_fuse(cfg.attn_softcap) and not (self.hook_attn_scores.is_hooked or self.hook_pattern.is_hooked):
            is_causal = context.is_plain_causal(self.layer_type)
            return fused.attend(q, k, v, None if is_causal else context.mask(self.layer_type), cfg.attn_scale, is_causal)
        scores = reference.attention_scores(q, k, context.mask(self.layer_type), cfg.attn_scale, cfg.attn_softcap)
        pattern = self.hook_pattern(reference.softmax_pattern(self.hook_attn_scores(scores)))
        return reference.mix_values(pattern, v)

    def _out(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos d_model"]:
        if not self.hook_result.is_hooked:
            return self.o(z.flatten(2))
        result = self.hook_result(torch.einsum("bphe,hed->bphd", z, self.W_O)).sum(2)
        return result if self.o.bias is None else result + self.o.bias

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Query weights, a view: x @ W_Q[h] is head h's query."""
        return _by_head(self.q.weight, self.cfg.n_heads)

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Key weights, a view, one per KV head."""
        return _by_head(self.k.weight, self.cfg.n_kv_heads)

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Value weights, a view, one per KV head."""
        return _by_head(self.v.weight, self.cfg.n_kv_heads)

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        """Output weights, a view: z[h] @ W_O[h] is what head h writes."""
        return self.o.weight.T.unflatten(0, (self.cfg.n_heads, self.cfg.d_head))

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"] | None:
        """Query bias, a view; None where the model has none. b_K, b_V and b_O likewise."""
        return None if self.q.bias is None else self.q.bias.view(self.cfg.n_heads, -1)

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"] | None:
        return None if self.k.bias is None else self.k.bias.view(self.cfg.n_kv_heads, -1)

    @property
    def b_V(self) -> Float[Tensor, "kv_head d_head"] | None:
        return None if self.v.bias is None else self.v.bias.view(self.cfg.n_kv_heads, -1)

    @property
    def b_O(self) -> Float[Tensor, " d_model"] | None:
        return self.o.bias


def project(
    x: Float[Tensor, "batch pos *head d_model"], linear: nn.Linear, n_heads: int
) -> Float[Tensor, "batch pos n_heads d_head"]:
    """Apply a projection and split it by head; an input that already differs by head meets only its own head's weights."""
    if x.dim() == 3:
        return linear(x).unflatten(-1, (n_heads, -1))
    out = torch.einsum("bphd,hde->bphe", x, _by_head(linear.weight, n_heads))
    return out if linear.bias is None else out + linear.bias.view(n_heads, -1)


def _by_head(weight: Float[Tensor, "head_times_d_head d_model"], n_heads: int) -> Float[Tensor, "head d_model d_head"]:
    return weight.unflatten(0, (n_heads, -1)).transpose(1, 2)
