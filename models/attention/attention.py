"""The hookable attention: projections, then steps that the config names, with a hook between each two."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..cache import KVCache
from ..config import TransformerConfig
from ..hooks import HookPoint, hooked_scores
from ..kernels import fused, reference
from ..norms import widened
from .context import AttentionContext
from .normaliser import Normaliser
from .normalisers import NORMALISERS
from .out_steps import OUT_STEPS
from .projection import by_head, project
from .qk_steps import QK_STEPS, QKNorm
from .score_terms import SCORE_TERMS

Inputs = Float[Tensor, "batch pos ... d_model"]
"""[batch, pos, d_model], or [batch, pos, head, d_model] where each head has an input of its own."""


class Attention(nn.Module):
    """One attention layer. `project`, `prepare`, `scores`, `mix` and `write` are the stages; variants override one of them.

        q_input ─ W_Q ─ hook_q ─ QK steps ─ hook_rot_q ─┐
        k_input ─ W_K ─ hook_k ─ QK steps ─ hook_rot_k ─┴─ scale, terms, cap, mask ─ hook_attn_scores ─ normaliser ─┐
        v_input ─ W_V ─ hook_v ──────────────────────────────────────────────────────────────────── hook_pattern ─┴─
              ─ hook_mixed ─ out steps ─ hook_z ─ W_O ─ out

    From rotation to z it runs fused, without a [query, key] tensor, unless a hook or a step needs one.
    """

    linear_reads = True
    signed_pattern = False

    hook_q: HookPoint
    hook_k: HookPoint
    hook_v: HookPoint
    hook_rot_q: HookPoint
    hook_rot_k: HookPoint
    hook_attn_scores: HookPoint
    hook_pattern: HookPoint
    hook_mixed: HookPoint
    hook_z: HookPoint
    hook_result: HookPoint
    q_norm: nn.Module
    k_norm: nn.Module
    normaliser: Normaliser

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer = cfg, layer
        self.linear_reads = self.linear_reads and not cfg.v_norm
        self._make_projections()
        if cfg.qk_norm != "none":
            self.q_norm, self.k_norm = QKNorm(cfg, cfg.n_heads), QKNorm(cfg, cfg.n_kv_heads)
        self.terms = nn.ModuleDict({name: SCORE_TERMS[name](cfg, layer) for name in cfg.score_terms})
        self.normaliser = NORMALISERS[cfg.normaliser](cfg, layer)
        self.out_steps = nn.ModuleDict({name: OUT_STEPS[name](cfg, layer) for name in cfg.out_steps})
        rotated, mixed = ["rot_q", "rot_k"] if cfg.qk_steps else [], ["mixed"] if cfg.out_steps else []
        self._make_hooks("q", "k", "v", *rotated, "attn_scores", "pattern", *mixed, "z", "result")

    def _make_projections(self) -> None:
        cfg = self.cfg
        self.q = nn.Linear(cfg.d_model, cfg.n_heads * cfg.d_head, bias=cfg.qkv_bias)
        self.k = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_head, bias=cfg.qkv_bias)
        if not cfg.keys_as_values:
            self.v = nn.Linear(cfg.d_model, cfg.n_kv_heads * cfg.d_value, bias=cfg.qkv_bias)
        self.o = nn.Linear(cfg.n_heads * cfg.d_value, cfg.d_model, bias=cfg.out_bias)

    def _make_hooks(self, *names: str) -> None:
        for name in names:
            setattr(self, f"hook_{name}", HookPoint(f"attn.hook_{name}"))

    @property
    def first_rotated(self) -> int:
        """The first dimension of a head that rotation reaches."""
        return 0

    @property
    def readers(self) -> dict[str, int]:
        """Inputs that can be split by head, and how many heads each has."""
        return {"q": self.cfg.n_heads, "k": self.cfg.n_kv_heads, "v": self.cfg.n_kv_heads}

    def forward(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext, cache: KVCache | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """What the layer writes. Inputs are shared by all heads, or, where a reader's input is hooked, one per head."""
        q, k, v = self.project(q_input, k_input, v_input, context)
        q, k = self.prepare(q, k, context)
        k, v = self.remember(k, v, context, cache)
        return self.write(self.mix(q, k, v, context), q_input, context)

    def project(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the new tokens, hooked."""
        cfg = self.cfg
        q = self.hook_q(project(q_input, self.q, cfg.n_heads))
        k = self.hook_k(project(k_input, self.k, cfg.n_kv_heads))
        return q, k, self.hook_v(self.values(v_input))

    def values(self, v_input: Inputs) -> Float[Tensor, "batch pos kv_head d_value"]:
        """Values of the new tokens, as the pattern mixes them."""
        v = project(v_input, self._value_weights, self.cfg.n_kv_heads)
        return F.rms_norm(widened(v), v.shape[-1:], None, self.cfg.norm_eps).to(v.dtype) if self.cfg.v_norm else v

    @property
    def _value_weights(self) -> nn.Linear:
        return self.k if self.cfg.keys_as_values else self.v

    def prepare(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """The steps between the projections and the scores."""
        steps = self.cfg.qk_steps
        for name in steps:
            q, k = QK_STEPS[name](self, q, k, context)
        return (self.hook_rot_q(q), self.hook_rot_k(k)) if steps else (q, k)

    def remember(self, k: Tensor, v: Tensor, context: AttentionContext, cache: KVCache | None) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens, those in the cache first."""
        return (k, v) if cache is None else cache.extend(self.layer, k, v)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Float[Tensor, "batch pos head d_value"]:
        """pattern @ v."""
        if self._can_fuse:
            return self.fused_mix(q, k, v, context)
        pattern = self.normaliser(hooked_scores(self.hook_attn_scores, self.masked_scores(q, k, context)))
        return self.apply_pattern(pattern, v, context)

    def fused_mix(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext) -> Float[Tensor, "batch pos head d_value"]:
        """softmax(scores) @ v, or that of a softmax with a sink, without a [query, key] tensor."""
        is_causal, sink = context.is_plain_causal(self.cfg), self._fused_sink
        mask = None if is_causal else context.mask(self.cfg)
        if sink is not None:
            return fused.attend_with_sink(q, k, v, mask, self.cfg.attn_scale, is_causal, sink)
        return fused.attend(q, k, v, mask, self.cfg.attn_scale, is_causal)

    def apply_pattern(
        self, pattern: Float[Tensor, "batch head query key"], v: Tensor, context: AttentionContext
    ) -> Float[Tensor, "batch pos head d_value"]:
        """pattern @ v, the pattern hooked first and kept for the out steps that show it."""
        pattern = self.hook_pattern(pattern)
        if self._steps_want_pattern:
            context.shared["pattern", self.layer] = pattern
        return reference.mix_values(pattern, v)

    @property
    def _can_fuse(self) -> bool:
        plain = (
            (self.normaliser.fusable or self._fused_sink is not None) and not self.terms and fused.can_fuse(self.cfg.attn_softcap)
        )
        return plain and not (self.hook_attn_scores.is_hooked or self.hook_pattern.is_hooked or self._steps_want_pattern)

    @property
    def _fused_sink(self) -> Float[Tensor, " head"] | None:
        """The sink that `fused_mix` reckons with. A layer with its own `mix` calls kernels that know of none."""
        return getattr(self.normaliser, "fused_sink", None) if type(self).mix is Attention.mix else None

    @property
    def _steps_want_pattern(self) -> bool:
        return any(step.wants_pattern for step in self.out_steps.values())

    def masked_scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> Float[Tensor, "batch head query key"]:
        """Scores as the normaliser sees them: soft-capped, and -inf where masked."""
        scores = reference.capped(self.scores(q, k, context), self.cfg.attn_softcap)
        return reference.masked(scores, context.mask(self.cfg))

    def scores(self, q: Tensor, k: Tensor, context: AttentionContext) -> Float[Tensor, "batch head query key"]:
        """Scaled dot products and what the config adds to them, before soft-cap and mask."""
        scores = self.products(q, k)
        for term in self.terms.values():
            scores = scores + term(q, k, context)
        return scores

    def products(self, q: Tensor, k: Tensor) -> Float[Tensor, "batch head query key"]:
        """Scaled dot products."""
        return reference.dot_products(q, k) * self.cfg.attn_scale

    def write(self, mixed: Tensor, x: Inputs, context: AttentionContext) -> Float[Tensor, "batch pos d_model"]:
        """The layer's output from pattern @ v, through the out steps and the output weights."""
        return self.finish(self.hook_mixed(mixed) if self.out_steps else mixed, x, context)

    def finish(self, mixed: Tensor, x: Inputs, context: AttentionContext) -> Float[Tensor, "batch pos d_model"]:
        """`write` from what `hook_mixed` hands on."""
        for step in self.out_steps.values():
            mixed = step(mixed, x, context)
        z = self.hook_z(mixed)
        if not self.hook_result.is_hooked:
            return self.o(z.flatten(2))
        result = self.hook_result(torch.einsum("bphe,hed->bphd", z, self.W_O)).sum(2)
        return result if self.o.bias is None else result + self.o.bias

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Query weights, a view: x @ W_Q[h] is head h's query."""
        return by_head(self.q.weight, self.cfg.n_heads)

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Key weights, a view, one per KV head."""
        return by_head(self.k.weight, self.cfg.n_kv_heads)

    @property
    def W_V(self) -> Float[Tensor, "kv_head d_model d_value"]:
        """Value weights, a view, one per KV head."""
        return by_head(self._value_weights.weight, self.cfg.n_kv_heads)

    @property
    def W_O(self) -> Float[Tensor, "head d_value d_model"]:
        """Output weights, a view: z[h] @ W_O[h] is what head h writes."""
        return self.o.weight.T.unflatten(0, (self.cfg.n_heads, self.cfg.d_value))

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"] | None:
        """Query bias, a view; None where the model has none. b_K, b_V and b_O likewise."""
        return None if self.q.bias is None else self.q.bias.view(self.cfg.n_heads, -1)

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"] | None:
        return None if self.k.bias is None else self.k.bias.view(self.cfg.n_kv_heads, -1)

    @property
    def b_V(self) -> Float[Tensor, "kv_head d_value"] | None:
        bias = self._value_weights.bias
        return None if bias is None else bias.view(self.cfg.n_kv_heads, -1)

    @property
    def b_O(self) -> Float[Tensor, " d_model"] | None:
        return self.o.bias
