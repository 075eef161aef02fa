"""Tiny decoders and encoders whose scores have T5's relative bias, and whose layers share keys and values."""

from __future__ import annotations

from models.config import RelativeConfig, RotaryConfig

_T5 = {"norm": "rms_norm", "positions": "none", "score_terms": ("t5_bias",), "attn_scale": 1.0, "activation": "relu"}

_LLAMA = {"positions": "rotary", "norm": "rms_norm", "gated_mlp": True, "activation": "gelu_tanh", "n_kv_heads": 2}

VARIANTS: dict[str, dict] = {
    "t5_decoder": _T5 | {"relative": RelativeConfig(n_buckets=6, max_distance=7), "n_kv_heads": 2},
    "t5_encoder": _T5 | {"relative": RelativeConfig(n_buckets=8, max_distance=6), "causal": False, "head": "none"},
    "umt5_decoder": _T5 | {"relative": RelativeConfig(n_buckets=6, max_distance=7, shared=False)},
    "shared_kv": _LLAMA
    | {"layer_types": ("store", "read", "read")}
    | {"by_type": {"store": {"mixer": "kv_store"}, "read": {"mixer": "kv_reader", "kv_from": 0}}},
    "gemma4": _LLAMA
    | {
        "block": "sandwich_scaled",
        "qk_norm": "per_head",
        "v_norm": True,
        "qkv_bias": True,
        "attn_scale": 1.0,
        "d_layer_embed": 5,
        "window": 4,
    }
    | {"layer_types": ("sliding", "full", "reader")}
    | {
        "by_type": {
            "sliding": {"mixer": "kv_store"},
            "full": {"d_head": 12, "n_kv_heads": 1, "keys_as_values": True}
            | {"rotary": RotaryConfig(scaling="proportional", proportion=0.5)},
            "reader": {"mixer": "kv_reader", "kv_from": 0, "mask": "sliding", "d_mlp": 96},
        }
    },
}
