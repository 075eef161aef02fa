"""Tiny models of every linear mixer, alone and beside softmax attention."""

from __future__ import annotations

from models.config import LinearConfig

_RMS = {"norm": "rms_norm", "gated_mlp": True, "activation": "silu"}
_DELTA = LinearConfig(n_key_heads=2, conv_width=3, qkv_activation="silu")
_KIMI = LinearConfig(conv_width=3, qkv_activation="silu", decay_rank=4, gate_rank=4, gate_activation="sigmoid", max_beta=2.0)
_MAMBA = {"n_key_heads": 2, "conv_width": 4, "conv_bias": True, "qkv_activation": "silu", "norm_groups": 2, "gate_first": True}
_LIGHTNING = LinearConfig(decay="lightning", qkv_activation="silu", norm_groups=1, gate_activation="sigmoid", norm_eps=1e-6)
_GATED = {"out_steps": ("gated_norm",), "positions": "none", "n_kv_heads": 4}

VARIANTS: dict[str, dict] = {
    "katharopoulos": {"mixer": "linear", "n_kv_heads": 2, "qkv_bias": True, "d_value": 6},
    "katharopoulos_rotary": _RMS | {"mixer": "linear", "positions": "rotary", "qk_norm": "per_head"},
    "retnet": _RMS | {"mixer": "retention", "positions": "rotary", "out_steps": ("gated_norm",), "linear": LinearConfig()},
    "retention_plain": {"mixer": "retention", "n_kv_heads": 2, "positions": "none"},
    "lightning_hybrid": _RMS
    | {"block": "normed_stream", "attn_stream_scale": 1.3, "mlp_stream_scale": 0.7, "residual_scale": 0.9}
    | {"positions": "rotary", "layer_types": ("linear", "full", "linear")}
    | {"by_type": {"linear": _GATED | {"mixer": "retention", "linear": _LIGHTNING, "attn_scale": 1.0}}},
    "mamba2": {"mixer": "mamba2", "norm": "rms_norm", "d_mlp": 0, "d_value": 12, "attn_scale": 1.0}
    | {"linear": LinearConfig(**_MAMBA), "out_steps": ("gated_norm",), "positions": "none"},
    "gated_delta_hybrid": _RMS
    | {"positions": "rotary", "n_kv_heads": 2, "layer_types": ("linear", "linear", "full")}
    | {"by_type": {"linear": _GATED | {"mixer": "gated_delta", "linear": _DELTA, "d_head": 6, "d_value": 5}}},
    "kimi_delta": _RMS | _GATED | {"mixer": "kimi_delta", "linear": _KIMI, "d_value": 5},
}
