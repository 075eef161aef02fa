"""Newer dense decoders, other normalisers, masks with sinks, and steps after the pattern."""

from __future__ import annotations

from models import RotaryConfig
from models.config import SparseConfig, TemperatureConfig

_LLAMA = {"positions": "rotary", "norm": "rms_norm", "gated_mlp": True, "activation": "silu", "n_kv_heads": 2}

VARIANTS: dict[str, dict] = {
    "olmo2": _LLAMA | {"block": "output_norm", "qk_norm": "full_width"},
    "cohere": _LLAMA
    | {"block": "parallel_shared", "norm": "layer_norm", "norm_bias": False, "qk_norm": "own_per_head", "logit_scale": 0.5}
    | {"rotary": RotaryConfig(layout="interleaved")},
    "cohere2": _LLAMA
    | {"block": "parallel_shared", "norm": "layer_norm", "norm_bias": False, "window": 4}
    | {"layer_types": ("sliding", "full", "sliding"), "by_type": {"full": {"positions": "none"}}},
    "smollm3": _LLAMA | {"layer_types": ("rope", "nope", "rope"), "by_type": {"nope": {"positions": "none"}}},
    "granite": _LLAMA | {"embed_scale": 2.0, "attn_scale": 0.5, "residual_scale": 0.4, "logit_scale": 1.5},
    "ministral3": _LLAMA | {"window": 5, "temperature": TemperatureConfig(0.5, 3.0, offset=0.0)},
    "gate": _LLAMA | {"out_steps": ("gate",), "d_value": 6},
    "head_norm": _LLAMA | {"out_steps": ("head_norm", "gate")},
    "differential": _LLAMA
    | {"mixer": "differential", "out_steps": ("differential_norm",), "attn_scale": 0.5, "rotary": RotaryConfig(dim=4)},
    "talking_heads": {"mixer": "talking_heads"},
    "sigmoid": _LLAMA | {"normaliser": "sigmoid"},
    "kernel_sum": _LLAMA | {"normaliser": "kernel_sum", "extra": {"kernel": "elu1"}},
    "kernel_exp": {"normaliser": "kernel_sum", "extra": {"kernel": "exp"}},
    "sink_window": _LLAMA | {"mask": "sink_window", "window": 3, "sparse": SparseConfig(n_sinks=2)},
}
