"""MiniMax-01 (arXiv 2501.08313): lightning attention with softmax attention between, experts, norms on the stream itself."""

from __future__ import annotations

from typing import Any

from ...config import ExpertsConfig, LinearConfig
from ...errors import ConfigError
from .experts import expert_weights
from .family import Family, HFConfig
from .hybrid import hybrid_layer_types, mixer_weights
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rules import activation


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    return hybrid_layer_types(hf, lambda layer: layer % 2 == 0)


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    linear = {
        "mixer": "retention",
        "positions": "none",
        "mask": "full",
        "n_kv_heads": hf["num_attention_heads"],
        "attn_scale": 1.0,
        "attn_stream_scale": float(hf["linear_attn_alpha_factor"]),
        "out_steps": ("gated_norm",),
        "linear": LinearConfig(
            decay="lightning", qkv_activation=activation(hf), gate_activation="sigmoid", norm_groups=1, norm_eps=1e-6
        ),
    }
    full = {} if hf["sliding_window"] is None else {"mask": "sliding"}
    return {kind: changes for kind, changes in (("linear", linear), ("full", full)) if kind in _layer_types(hf) and changes}


def _residual_scale(hf: HFConfig) -> float:
    """What attention and MLP write is scaled alike; no published model scales it at all."""
    scales = {float(hf[f"{part}_beta_factor"]) for part in ("full_attn", "linear_attn", "mlp")}
    if len(scales) > 1:
        raise ConfigError(f"the beta factors of attention and MLP must be equal, got {', '.join(map(str, sorted(scales)))}.")
    return scales.pop()


def _experts(hf: HFConfig) -> ExpertsConfig:
    return ExpertsConfig(
        n_experts=hf["num_local_experts"], n_active=hf["num_experts_per_tok"], d_expert=hf["intermediate_size"], normalise=True
    )


LIGHTNING: dict[str, str | tuple[str, str]] = {
    **{f"{part}.weight": ("qkv_proj.weight", f"lightning_{part}") for part in "qkv"},
    "o.weight": "out_proj.weight",
    "out_steps.gated_norm.gate.weight": "output_gate.weight",
    "out_steps.gated_norm.weight": "norm.weight",
}

MINIMAX = Family(
    name="minimax",
    model_types=("minimax",),
    defaults={
        **DEFAULTS,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": None,
        "layer_types": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        **{f"{part}_{factor}_factor": 1 for part in ("full_attn", "linear_attn", "mlp") for factor in ("alpha", "beta")},
    },
    constants={**CONSTANTS, "block": "normed_stream"},
    config={
        **CONFIG,
        "window": "sliding_window",
        "layer_types": _layer_types,
        "by_type": _by_type,
        "experts": _experts,
        "attn_stream_scale": lambda hf: float(hf["full_attn_alpha_factor"]),
        "mlp_stream_scale": lambda hf: float(hf["mlp_alpha_factor"]),
        "residual_scale": _residual_scale,
    },
    weights={
        **{ours: theirs for ours, theirs in WEIGHTS.items() if ".mlp." not in ours},
        **expert_weights("block_sparse_moe", gate="w1", up="w3", down="w2"),
        **mixer_weights("retention", "self_attn", LIGHTNING),
    },
    prefixes=PREFIXES,
    ignored=(*IGNORED, r"\.self_attn\.(slope_rate|query_decay|key_decay|diagonal_decay)$"),
)
