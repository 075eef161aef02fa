"""Tiny decoders with several streams, whose gates are sparse in some layers."""

from __future__ import annotations

from models.config import AltUpConfig, RotaryConfig

_ALTUP = {
    "positions": "rotary",
    "norm": "rms_norm",
    "gated_mlp": True,
    "activation": "gelu_tanh",
    "n_kv_heads": 2,
    "block": "altup",
}

VARIANTS: dict[str, dict] = {
    "gemma3n": _ALTUP
    | {"qk_norm": "per_head", "v_norm": True, "attn_scale": 1.0, "d_layer_embed": 5, "d_layer_vocab": 40, "window": 4}
    | {"altup": AltUpConfig(n_streams=3, laurel_rank=6), "layer_types": ("sliding", "full", "reader"), "embed_scale": 5.5}
    | {
        "by_type": {
            "sliding": {"mixer": "kv_store", "mlp": "sparse_gated", "mlp_sparsity": 0.7},
            "full": {"d_mlp": 40, "rotary": RotaryConfig(base=1e6)},
            "reader": {"mixer": "kv_reader", "kv_from": 0, "mask": "sliding"},
        }
    },
    "altup": _ALTUP
    | {"altup": AltUpConfig(n_streams=2, active=1, scaled_read=False, laurel_rank=3), "d_layer_embed": 4, "qkv_bias": True},
}
