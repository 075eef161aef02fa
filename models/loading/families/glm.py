"""GLM-4 (GLM team 2024, arXiv 2406.12793): half of each head rotated in interleaved pairs, few key heads, gate and up in one.

The first release has Llama's block; that of 2025 ("glm4") adds a norm after attention and after the MLP.
"""

from __future__ import annotations

from ..fill import Weight
from .family import Family
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .phi import FUSED_GATE
from .rotary import interleaved_rotary

GLM_DEFAULTS = {
    **DEFAULTS,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1.5625e-7,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "bos_token_id": None,
    "eos_token_id": [151_329, 151_336, 151_338],
}
GLM_CONFIG = {**{ours: rule for ours, rule in CONFIG.items() if ours != "out_bias"}, "rotary": interleaved_rotary}
GLM_WEIGHTS: dict[str, str | Weight] = {**WEIGHTS, **FUSED_GATE}

GLM = Family(
    name="glm",
    model_types=("glm",),
    defaults=GLM_DEFAULTS,
    constants=CONSTANTS,
    config=GLM_CONFIG,
    weights=GLM_WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)

GLM4 = Family(
    name="glm4",
    model_types=("glm4",),
    defaults=GLM_DEFAULTS,
    constants={**CONSTANTS, "block": "sandwich"},
    config=GLM_CONFIG,
    weights={
        **GLM_WEIGHTS,
        "blocks.{l}.ln1_post.weight": "{base}layers.{l}.post_self_attn_layernorm.weight",
        "blocks.{l}.ln2_post.weight": "{base}layers.{l}.post_mlp_layernorm.weight",
    },
    prefixes=PREFIXES,
    ignored=IGNORED,
)
