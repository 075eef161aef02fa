"""A mixture of experts in place of the MLP (Shazeer et al. 2017, arXiv 1701.06538; Jiang et al. 2024, arXiv 2401.04088).

    x ─ router ─ hook_router_logits ─ ROUTERS ─ hook_expert_weights ─────┐
    x ─ gate ─ hook_expert_pre ─ activation ─┐                           │
    x ─ up ─ hook_expert_pre_linear ─────────┴─ hook_expert_post ─ down ─┴─ hook_expert_out ─ sum ─┐
    x ─ shared expert ─ hook_shared_out ───────────────────────────────────────────────────────────┴─ out

Each expert runs on the tokens that go to it, unless a hook of the two middle lines is in use: then all run on all tokens. An
expert counts for a token exactly where its weight is not 0, so that editing the weights switches experts on and off.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .config import ExpertsConfig, TransformerConfig
from .hooks import HookPoint
from .mlp import ACTIVATION_FUNCTIONS, MLP, GatedMLP
from .norms import widened
from .routing import ROUTERS

Tokens = Float[Tensor, "batch pos d_model"]
Weights = Float[Tensor, "batch pos expert"]


class Router(nn.Module):
    """One logit per expert, at least in float32: rounding it may send a token elsewhere."""

    def __init__(self, d_model: int, options: ExpertsConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(_start(options.n_experts, d_model, fan_in=d_model))
        self.bias = nn.Parameter(torch.zeros(options.n_experts)) if options.router_bias else None
        # Training moves the correction by a rule that evens out the load: no gradient reaches it.
        self.correction = nn.Parameter(torch.zeros(options.n_experts)) if options.correction else None

    def forward(self, x: Tokens) -> Weights:
        return F.linear(widened(x), widened(self.weight), None if self.bias is None else widened(self.bias))


class ExpertLinear(nn.Module):
    """A linear map for each expert: weight [expert, out, in], bias [expert, out]."""

    def __init__(self, n_experts: int, d_in: int, d_out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(_start(n_experts, d_out, d_in, fan_in=d_in))
        self.bias = nn.Parameter(_start(n_experts, d_out, fan_in=d_in)) if bias else None

    def forward(self, x: Float[Tensor, "batch pos #expert d_in"]) -> Float[Tensor, "batch pos expert d_out"]:
        """All experts, on an input each or on one that they share."""
        out = torch.einsum("bpei,eoi->bpeo", x.expand(-1, -1, len(self.weight), -1), self.weight)
        return out if self.bias is None else out + self.bias

    def one(self, expert: int, x: Float[Tensor, "token d_in"]) -> Float[Tensor, "token d_out"]:
        """One expert."""
        return F.linear(x, self.weight[expert], None if self.bias is None else self.bias[expert])


class ExpertLayers(nn.Module):
    """The projections of all experts; `gate` is None where they are not gated."""

    def __init__(self, cfg: TransformerConfig, options: ExpertsConfig) -> None:
        super().__init__()
        sizes = (options.n_experts, cfg.d_model, options.d_expert)
        self.gate = ExpertLinear(*sizes, options.bias) if cfg.gated_mlp else None
        self.up = ExpertLinear(*sizes, options.bias)
        self.down = ExpertLinear(options.n_experts, options.d_expert, cfg.d_model, options.bias)


class Experts(nn.Module):
    """`hook_expert_weights` is 0 where a token does not go to an expert; `hook_expert_out` is what each adds to the sum."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        if cfg.experts is None:
            raise ValueError("a mixture of experts needs cfg.experts, got None.")
        self.options = options = cfg.experts
        self.activation = ACTIVATION_FUNCTIONS[cfg.activation]
        self.choose = ROUTERS[options.router]
        self.router = Router(cfg.d_model, options)
        self.experts = ExpertLayers(cfg, options)
        if options.d_shared:
            self.shared = shared_expert(cfg, options)
            self.hook_shared_out = HookPoint("mlp.hook_shared_out")
        if options.shared_gate:
            self.shared_gate = nn.Linear(cfg.d_model, 1, bias=False)
            self.hook_shared_gate = HookPoint("mlp.hook_shared_gate")
        self.hook_router_logits = HookPoint("mlp.hook_router_logits")
        self.hook_expert_weights = HookPoint("mlp.hook_expert_weights")
        self.hook_expert_pre = HookPoint("mlp.hook_expert_pre")
        if cfg.gated_mlp:
            self.hook_expert_pre_linear = HookPoint("mlp.hook_expert_pre_linear")
        self.hook_expert_post = HookPoint("mlp.hook_expert_post")
        self.hook_expert_out = HookPoint("mlp.hook_expert_out")

    def forward(self, x: Tokens) -> Tokens:
        logits = self.hook_router_logits(self.router(x))
        weights = self.hook_expert_weights(self.choose(logits, self.options, self.router.correction).to(x.dtype))
        out = self._dense(x, weights) if self._needs_all else self._sparse(x, weights)
        return out if self.options.d_shared == 0 else out + self._shared(x)

    @property
    def _needs_all(self) -> bool:
        # A gradient with respect to the weight of an expert that a token does not go to takes that expert's output too.
        followed = torch.is_grad_enabled() and self.hook_expert_weights.is_in_graph
        hidden = [self.hook_expert_pre, self.hook_expert_post, self.hook_expert_out]
        hidden += [self.hook_expert_pre_linear] if self.experts.gate is not None else []
        return followed or any(point.is_hooked for point in hidden)

    def _dense(self, x: Tokens, weights: Weights) -> Tokens:
        """Every expert on every token."""
        layers, weight, by_input = self.experts, weights[..., None], self.options.weighed == "input"
        x = x[:, :, None] * weight if by_input else x[:, :, None]
        if layers.gate is None:
            post = self.hidden(self.hook_expert_pre(layers.up(x)))
        else:
            post = self.hidden(self.hook_expert_pre(layers.gate(x)), self.hook_expert_pre_linear(layers.up(x)))
        out = layers.down(self.hook_expert_post(post))
        return self.hook_expert_out(out if by_input else out * weight).sum(2)

    def _sparse(self, x: Tokens, weights: Weights) -> Tokens:
        """Every expert on the tokens where its weight is not 0."""
        tokens, by_token = x.flatten(0, 1), weights.flatten(0, 1)
        out = torch.zeros_like(tokens)
        for expert in by_token.count_nonzero(0).nonzero().flatten().tolist():
            rows = by_token[:, expert].nonzero().flatten()
            weight, read = by_token[rows, expert, None], tokens[rows]
            written = self._one(expert, read * weight) if self.options.weighed == "input" else self._one(expert, read) * weight
            out.index_add_(0, rows, written)
        return out.view_as(x)

    def _one(self, expert: int, x: Float[Tensor, "token d_model"]) -> Float[Tensor, "token d_model"]:
        layers = self.experts
        if layers.gate is None:
            return layers.down.one(expert, self.hidden(layers.up.one(expert, x)))
        return layers.down.one(expert, self.hidden(layers.gate.one(expert, x), layers.up.one(expert, x)))

    def hidden(
        self, pre: Float[Tensor, "*token d_expert"], pre_linear: Float[Tensor, "*token d_expert"] | None = None
    ) -> Float[Tensor, "*token d_expert"]:
        """What the down projection reads: activation(pre), times pre_linear where experts are gated, both clamped if need be."""
        limit = self.options.limit
        if limit is not None:
            pre = pre.clamp(max=limit)
            pre_linear = None if pre_linear is None else pre_linear.clamp(-limit, limit)
        active = self.activation(pre)
        return active if pre_linear is None else active * (pre_linear + self.options.up_offset)

    def _shared(self, x: Tokens) -> Tokens:
        out = self.shared(x)
        if self.options.shared_gate:
            out = out * self.hook_shared_gate(torch.sigmoid(self.shared_gate(x)))
        return self.hook_shared_out(out)

    @property
    def W_router(self) -> Float[Tensor, "d_model expert"]:
        """A view: x @ W_router, plus a bias if there is one, are the logits."""
        return self.router.weight.T

    @property
    def W_in(self) -> Float[Tensor, "expert d_model d_expert"]:
        """A view: x @ W_in[e] is what enters the hidden layer of expert e."""
        return self.experts.up.weight.transpose(1, 2)

    @property
    def W_gate(self) -> Float[Tensor, "expert d_model d_expert"] | None:
        """A view: x @ W_gate[e] is what the activation of expert e sees; None where experts are not gated."""
        return None if self.experts.gate is None else self.experts.gate.weight.transpose(1, 2)

    @property
    def W_out(self) -> Float[Tensor, "expert d_expert d_model"]:
        """A view: post @ W_out[e] is what expert e writes."""
        return self.experts.down.weight.transpose(1, 2)


def shared_expert(cfg: TransformerConfig, options: ExpertsConfig) -> MLP:
    """The expert that every token goes to: an MLP of the model's kind, whose hooks are `mlp.shared.hook_pre` and so on."""
    plain = cfg.replace(experts=None, mlp="", d_mlp=options.d_shared)
    return (GatedMLP if cfg.gated_mlp else MLP)(plain, "mlp.shared")


def _start(*shape: int, fan_in: int) -> Tensor:
    """Uniform in +-1/sqrt(fan_in), as `nn.Linear` starts."""
    return nn.init.uniform_(torch.empty(shape), -(fan_in**-0.5), fan_in**-0.5)
