"""What the linear mixers share: reading through a short convolution, one matrix per head, a state in place of past keys.

    q_input ─ W_Q ─ convolution ─ activation ─ hook_q ─ QK steps ─┐
    k_input ─ W_K ─ convolution ─ activation ─ hook_k ─ QK steps ─┼─ M (hook_decay, hook_beta) ─ hook_pattern ─┐
    v_input ─ W_V ─ convolution ─ activation ─ hook_v ────────────┴────────────────────────────────────────────┴─
          ─ hook_mixed ─ out steps ─ hook_z ─ W_O ─ out

M, the pattern, is what the layer amounts to as a matrix on its values (`models.kernels.linear`). It is formed only while hooked;
otherwise the layer runs in chunks, at a cost linear in the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..cache import KVCache
from ..config import LinearConfig, TransformerConfig
from ..errors import ConfigError, HookError, InputError
from ..hooks import HookPoint
from ..kernels.linear import gated
from ..kernels.linear.convolution import short_convolution
from ..kernels.reference import mix_values, repeat_kv
from ..mlp import ACTIVATION_FUNCTIONS
from .attention import Attention, Inputs
from .context import AttentionContext
from .out_steps import OUT_STEPS
from .projection import by_head, project
from .qk_steps import QKNorm

Real = Bool[Tensor, "batch pos"]


class ShortConvolution(nn.Module):
    """Weights of a causal convolution over the last `width` tokens, each channel on its own."""

    def __init__(self, channels: int, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, width))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)


class Recurrent(Attention):
    """A mixer that is linear in its values, with a state per head, [d_head, d_value], that holds all of the past.

    A variant names its rule, and says what decays and how strongly tokens write (`dynamics`). `hook_q`, `hook_k` and `hook_v`
    are what the convolution and its activation hand on; where heads share queries and keys, each has its own copy.
    `hook_state` shows the state after every token, computed only while hooked: an edit changes what that token's query reads,
    and, after the last token, what a cache carries on. The states of later tokens do not follow it.
    """

    signed_pattern = True
    rule: ModuleType = gated
    own_hooks: tuple[str, ...] = ("decay", "state")

    hook_decay: HookPoint
    hook_beta: HookPoint
    hook_state: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        nn.Module.__init__(self)
        self.cfg, self.layer, self.linear = cfg, layer, cfg.linear or LinearConfig()
        self._check()
        self._make_projections()
        if cfg.qk_norm != "none":
            self.q_norm, self.k_norm = QKNorm(cfg, cfg.n_heads), QKNorm(cfg, cfg.n_kv_heads)
        self.out_steps = nn.ModuleDict({name: OUT_STEPS[name](cfg, layer) for name in cfg.out_steps})
        rotated, mixed = ["rot_q", "rot_k"] if cfg.qk_steps else [], ["mixed"] if cfg.out_steps else []
        self._make_hooks("q", "k", "v", *rotated, *self.own_hooks, "pattern", *mixed, "z", "result")

    def _check(self) -> None:
        cfg = self.cfg
        if not cfg.causal or cfg.mask != "full":
            got = f"mask={cfg.mask!r}" if cfg.causal else "causal=False"
            raise ConfigError(f"mixer={cfg.mixer!r} reads tokens in order and sees all before; it cannot be had with {got}.")
        if cfg.normaliser != "softmax":
            raise ConfigError(f"mixer={cfg.mixer!r} has no scores to normalise, got normaliser={cfg.normaliser!r}.")
        if self.linear.n_key_heads and cfg.n_heads % self.linear.n_key_heads:
            raise ConfigError(
                f"n_heads must be a multiple of linear.n_key_heads, got {cfg.n_heads} and {self.linear.n_key_heads}."
            )

    @property
    def linear_reads(self) -> bool:  # type: ignore[override]
        """Whether nothing comes between the projections and `hook_q`, `hook_k` and `hook_v`."""
        return not (self.linear.qkv_activation or self.linear.conv_width)

    @property
    def n_projected(self) -> dict[str, int]:
        """Distinct queries, keys and values per token."""
        cfg, shared = self.cfg, self.linear.n_key_heads
        return {"q": shared or cfg.n_heads, "k": shared or cfg.n_kv_heads, "v": cfg.n_kv_heads}

    @property
    def readers(self) -> dict[str, int]:
        """None: decays, gates and convolution read the same input as queries, keys and values."""
        return {}

    def _make_projections(self) -> None:
        cfg, linear, widths = self.cfg, self.linear, {"q": self.cfg.d_head, "k": self.cfg.d_head, "v": self.cfg.d_value}
        for name, heads in self.n_projected.items():
            setattr(self, name, nn.Linear(cfg.d_model, heads * widths[name], bias=cfg.qkv_bias))
            if linear.conv_width:
                setattr(self, f"conv_{name}", ShortConvolution(heads * widths[name], linear.conv_width, linear.conv_bias))
        self.o = nn.Linear(cfg.n_heads * cfg.d_value, cfg.d_model, bias=cfg.out_bias)

    def dynamics(self, x: Inputs) -> tuple[Tensor, ...]:
        """What the rule takes beside queries, keys and values, hooked."""
        raise NotImplementedError

    def forward(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext, cache: KVCache | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """What the layer writes."""
        if context.info.changes_masks:
            raise InputError(
                f"layer {self.layer} reads tokens in order and sees all before: documents, prefix and visible do not reach it."
            )
        past = {} if cache is None else cache.state(self.layer)
        real = None if context.real is None else context.real[:, context.n_past :]
        inputs = {"q": q_input, "k": k_input, "v": v_input}
        read = {name: self._read(name, x, past.get(f"conv_{name}"), real) for name, x in inputs.items()}
        q, k = self.prepare(read["q"][0], read["k"][0], context)
        q, k, v, *rest = without_padding(real, q, k, read["v"][0], *self.dynamics(q_input))
        k, v = repeat_kv(k, self.cfg.n_heads), repeat_kv(v, self.cfg.n_heads)
        mixed, state = self.recur(q, k, v, rest, past.get("state"), context)
        if cache is not None:
            cache.set_state(self.layer, {"state": state} | {f"conv_{name}": last for name, (_, last) in read.items()})
        if self.out_steps:
            mixed = self.hook_mixed(mixed)
        return self.finish(self.skip(mixed, v), q_input, context)

    def _read(self, name: str, x: Inputs, past: Tensor | None, real: Real | None) -> tuple[Tensor, Tensor]:
        """Queries, keys or values, hooked, and the convolution's last inputs."""
        heads, linear = self.n_projected[name], self.linear
        out = project(x, getattr(self, name), heads)
        last = out[:, :0]
        if linear.conv_width:
            kernel = getattr(self, f"conv_{name}")
            flat, last = short_convolution(out.flatten(2), kernel.weight, kernel.bias, past, real)
            out = flat.unflatten(2, (heads, -1))
        if linear.qkv_activation:
            out = ACTIVATION_FUNCTIONS[linear.qkv_activation](out)
        if name != "v" and linear.n_key_heads:
            out = repeat_kv(out, self.cfg.n_heads)
        return getattr(self, f"hook_{name}")(out), last

    def prepare(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """The steps between the projections and the rule; the queries are scaled last."""
        q, k = super().prepare(q, k, context)
        return q * self.cfg.attn_scale, k

    def recur(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rest: Sequence[Tensor],
        before: Tensor | None,
        context: AttentionContext,
    ) -> tuple[Float[Tensor, "batch pos head d_value"], Tensor]:
        """What the queries read, and the state after the last token; before: the state that earlier calls left."""
        mixed, state = self.rule.chunked(q, k, v, *rest, state=before)
        if self._shows_weights:
            if before is not None:
                raise HookError(
                    f"'{self.hook_pattern.name}' needs the whole sequence in one call: "
                    "of earlier tokens a recurrent layer keeps only its state."
                )
            context.shared["pattern", self.layer] = pattern = self.weights(q, k, rest)
            mixed = mix_values(pattern, v.to(pattern.dtype)).to(v.dtype)
        if self.hook_state.is_hooked:
            states = torch.stack(list(self.rule.states(k, v, *rest, state=before)), 1)
            edited = self.hook_state(states)
            if edited is not states:
                mixed = mixed + (self.rule.read(q, edited) - self.rule.read(q, states)).to(mixed.dtype)
                state = edited[:, -1]
        return mixed, state

    @property
    def _shows_weights(self) -> bool:
        return self.hook_pattern.is_hooked or self._steps_want_pattern

    def weights(self, q: Tensor, k: Tensor, rest: Sequence[Tensor]) -> Float[Tensor, "batch head query key"]:
        """The layer as a matrix on its values, hooked."""
        return self.hook_pattern(self.rule.implicit_matrix(q, k, *rest).to(q.dtype))

    def skip(self, mixed: Tensor, v: Tensor) -> Float[Tensor, "batch pos head d_value"]:
        """What reaches the out steps: what the queries read, and whatever bypasses the rule."""
        return mixed

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Query weights, one per head, copies where heads share them; the convolution and its activation come after."""
        return self._by_head("q")

    @property
    def W_K(self) -> Float[Tensor, "kv_head d_model d_head"]:
        """Key weights, as `W_Q`."""
        return self._by_head("k")

    @property
    def b_Q(self) -> Float[Tensor, "head d_head"] | None:
        """Query bias, as `W_Q`; None where the model has none. b_K likewise."""
        return self._bias_by_head("q")

    @property
    def b_K(self) -> Float[Tensor, "kv_head d_head"] | None:
        return self._bias_by_head("k")

    def _bias_by_head(self, name: str) -> Tensor | None:
        bias = getattr(self, name).bias
        return None if bias is None else self._per_head(bias.view(self.n_projected[name], -1))

    def _by_head(self, name: str) -> Tensor:
        return self._per_head(by_head(getattr(self, name).weight, self.n_projected[name]))

    def _per_head(self, weight: Tensor) -> Tensor:
        return weight.repeat_interleave(self.cfg.n_heads // len(weight), 0) if self.linear.n_key_heads else weight


def without_padding(real: Real | None, *tensors: Tensor) -> list[Tensor]:
    """The tensors [batch, pos, ...] with 0 at padding: such a token writes nothing, reads nothing and lets nothing decay."""
    if real is None:
        return list(tensors)
    return [x.masked_fill(~real.view(*real.shape, *[1] * (x.dim() - 2)), 0.0) for x in tensors]
