"""Tiny models with mixtures of experts, learned sinks and chunked attention."""

from __future__ import annotations

from models.config import ExpertsConfig, RotaryConfig, TemperatureConfig

_LLAMA = {"positions": "rotary", "norm": "rms_norm", "gated_mlp": True, "activation": "silu", "n_kv_heads": 2}
_GROUPED = ExpertsConfig(
    n_experts=8,
    n_active=3,
    d_expert=12,
    router="sigmoid",
    normalise=True,
    scale=1.5,
    correction=True,
    n_groups=4,
    n_active_groups=2,
    group_top=2,
    d_shared=20,
)
_OSS = ExpertsConfig(n_experts=4, n_active=2, d_expert=16, normalise=True, router_bias=True, bias=True, limit=0.8, up_offset=1.0)

VARIANTS: dict[str, dict] = {
    "mixtral": _LLAMA | {"experts": ExpertsConfig(n_experts=4, n_active=2, d_expert=16, normalise=True)},
    "ungated_experts": {"mlp_bias": True, "experts": ExpertsConfig(n_experts=3, n_active=1, d_expert=24, bias=True)},
    "shared_expert": _LLAMA
    | {"experts": ExpertsConfig(n_experts=4, n_active=2, d_expert=12, d_shared=20, shared_gate=True)}
    | {"layer_types": ("full_dense", "full", "full"), "by_type": {"full_dense": {"mask": "full", "experts": None}}},
    "grouped_experts": _LLAMA
    | {"experts": _GROUPED, "layer_types": ("dense", "full", "full"), "by_type": {"dense": {"experts": None}}},
    "gpt_oss": _LLAMA
    | {"experts": _OSS, "activation": "quick_gelu", "normaliser": "sink_softmax", "qkv_bias": True, "out_bias": True}
    | {"window": 4, "layer_types": ("sliding", "full", "sliding")},
    "llama4": _LLAMA
    | {"experts": ExpertsConfig(n_experts=4, n_active=2, d_expert=16, router="sigmoid", weighed="input", d_shared=16)}
    | {"rotary": RotaryConfig(layout="interleaved"), "qk_norm": "l2", "qk_norm_place": "after", "chunk": 4}
    | {
        "layer_types": ("chunked", "nope_dense", "chunked"),
        "by_type": {
            "nope_dense": {
                "experts": None,
                "positions": "none",
                "qk_norm": "none",
                "temperature": TemperatureConfig(scale=0.5, floor_scale=2.0),
            }
        },
    },
    "encoder_chunked": {"causal": False, "mask": "chunked", "chunk": 4},
}
