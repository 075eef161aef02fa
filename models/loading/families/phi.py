"""Phi-1 and Phi-2 (Gunasekar et al. 2023, arXiv 2306.11644; parallel, biased, partly rotated) and Phi-3 (Abdin et al. 2024, arXiv
2404.14219; Llama's block with fused weights and LongRoPE)."""

from __future__ import annotations

from ..fill import Weight
from .family import Family, HFConfig
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rotary import partial_rotary, scaled_n_ctx
from .rules import activation, d_head, eos_token_ids, n_kv_heads

PHI = Family(
    name="phi",
    model_types=("phi",),
    defaults={
        "num_key_value_heads": None,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    constants={
        "block": "parallel_shared",
        "norm": "layer_norm",
        "positions": "rotary",
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
        "unembed_bias": True,
    },
    config={
        "n_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "n_heads": "num_attention_heads",
        "n_kv_heads": n_kv_heads,
        "d_head": d_head,
        "d_vocab": "vocab_size",
        "n_ctx": scaled_n_ctx,
        "d_mlp": "intermediate_size",
        "norm_eps": "layer_norm_eps",
        "rotary": partial_rotary,
        "activation": activation,
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}embed_tokens.weight",
        "blocks.{l}.ln1.weight": "{base}layers.{l}.input_layernorm.weight",
        "blocks.{l}.ln1.bias": "{base}layers.{l}.input_layernorm.bias",
        "blocks.{l}.attn.q.weight": "{base}layers.{l}.self_attn.q_proj.weight",
        "blocks.{l}.attn.q.bias": "{base}layers.{l}.self_attn.q_proj.bias",
        "blocks.{l}.attn.k.weight": "{base}layers.{l}.self_attn.k_proj.weight",
        "blocks.{l}.attn.k.bias": "{base}layers.{l}.self_attn.k_proj.bias",
        "blocks.{l}.attn.v.weight": "{base}layers.{l}.self_attn.v_proj.weight",
        "blocks.{l}.attn.v.bias": "{base}layers.{l}.self_attn.v_proj.bias",
        "blocks.{l}.attn.o.weight": "{base}layers.{l}.self_attn.dense.weight",
        "blocks.{l}.attn.o.bias": "{base}layers.{l}.self_attn.dense.bias",
        "blocks.{l}.mlp.up.weight": "{base}layers.{l}.mlp.fc1.weight",
        "blocks.{l}.mlp.up.bias": "{base}layers.{l}.mlp.fc1.bias",
        "blocks.{l}.mlp.down.weight": "{base}layers.{l}.mlp.fc2.weight",
        "blocks.{l}.mlp.down.bias": "{base}layers.{l}.mlp.fc2.bias",
        "ln_final.weight": "{base}final_layernorm.weight",
        "ln_final.bias": "{base}final_layernorm.bias",
        "unembed.weight": "{head}lm_head.weight",
        "unembed.bias": "{head}lm_head.bias",
    },
    prefixes=PREFIXES,
    refused={"qk_layernorm": (False, None)},
    ignored=IGNORED,
)

FUSED_QKV = {
    "blocks.{l}.attn.q.weight": Weight("{base}layers.{l}.self_attn.qkv_proj.weight", "stacked_q"),
    "blocks.{l}.attn.k.weight": Weight("{base}layers.{l}.self_attn.qkv_proj.weight", "stacked_k"),
    "blocks.{l}.attn.v.weight": Weight("{base}layers.{l}.self_attn.qkv_proj.weight", "stacked_v"),
}

FUSED_GATE = {
    "blocks.{l}.mlp.gate.weight": Weight("{base}layers.{l}.mlp.gate_up_proj.weight", "first_half"),
    "blocks.{l}.mlp.up.weight": Weight("{base}layers.{l}.mlp.gate_up_proj.weight", "second_half"),
}


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    return ("full" if hf["sliding_window"] is None else "sliding",) * hf["num_hidden_layers"]


PHI3 = Family(
    name="phi3",
    model_types=("phi3",),
    defaults={
        **DEFAULTS,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 1.0,
        "sliding_window": None,
        "eos_token_id": 32_000,
    },
    constants=CONSTANTS,
    config={
        **{ours: rule for ours, rule in CONFIG.items() if ours not in ("qkv_bias", "out_bias")},
        "rotary": partial_rotary,
        "window": "sliding_window",
        "layer_types": _layer_types,
    },
    weights={**WEIGHTS, **FUSED_QKV, **FUSED_GATE},
    prefixes=PREFIXES,
    ignored=IGNORED,
)
