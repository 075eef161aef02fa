"""Models that differ in positions: ALiBi, position tables with an offset, LongRoPE, proportional rotation, unscaled scores."""

from __future__ import annotations

from models import RotaryConfig
from models.config import AlibiConfig

_LLAMA = {"positions": "rotary", "norm": "rms_norm", "gated_mlp": True, "activation": "silu", "n_kv_heads": 2}
_ALIBI = {"positions": "none", "score_terms": ("alibi",)}

VARIANTS: dict[str, dict] = {
    "bloom": _ALIBI | {"embed_norm": True, "qkv_bias": True, "out_bias": True, "mlp_bias": True, "tie_embeddings": True},
    "mpt": _ALIBI | {"norm_bias": False, "alibi": AlibiConfig(max_bias=4.0), "activation": "gelu"},
    "falcon_alibi": _ALIBI
    | {"alibi": AlibiConfig(max_bias=3.0, is_rounded=True, is_scaled=True), "n_kv_heads": 1, "block": "parallel_shared"},
    "alibi_encoder": _ALIBI | {"causal": False, "window": 3, "layer_types": ("full", "sliding", "full")},
    "opt": {"position_offset": 2, "activation": "relu", "qkv_bias": True, "block": "post", "final_norm": False},
    "gpt_neo": {"attn_scale": 1.0, "window": 4, "layer_types": ("full", "sliding", "full"), "out_bias": True},
    "longrope": _LLAMA
    | {
        "rotary": RotaryConfig(
            scaling="longrope",
            factor=4.0,
            original_n_ctx=16,
            short_factor=(1.0, 1.2, 1.5, 2.0),
            long_factor=(1.0, 2.0, 4.0, 8.0),
        )
    },
    "proportional": _LLAMA | {"rotary": RotaryConfig(scaling="proportional", proportion=0.5, factor=2.0)},
}
