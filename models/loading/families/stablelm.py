"""StableLM 2 (Bellagente et al. 2024, arXiv 2402.17834): Llama's weights with LayerNorm and a quarter of each head rotated."""

from __future__ import annotations

from .family import Family
from .llama import CONFIG, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rotary import partial_rotary

STABLELM = Family(
    name="stablelm",
    model_types=("stablelm",),
    defaults={
        **DEFAULTS,
        "max_position_embeddings": 4096,
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.25,
        "use_qkv_bias": False,
        "use_parallel_residual": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    constants={"norm": "layer_norm", "positions": "rotary", "gated_mlp": True},
    config={
        **{ours: rule for ours, rule in CONFIG.items() if ours != "out_bias"},
        "block": lambda hf: "parallel_shared" if hf["use_parallel_residual"] else "pre",
        "norm_eps": "layer_norm_eps",
        "rotary": partial_rotary,
        "qkv_bias": "use_qkv_bias",
    },
    weights={
        **WEIGHTS,
        "blocks.{l}.ln1.bias": "{base}layers.{l}.input_layernorm.bias",
        "blocks.{l}.ln2.bias": "{base}layers.{l}.post_attention_layernorm.bias",
        "ln_final.bias": "{base}norm.bias",
    },
    prefixes=PREFIXES,
    refused={"qk_layernorm": (False, None)},
    ignored=IGNORED,
)
