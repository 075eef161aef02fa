"""Tiny random Hugging Face models with mixtures of experts, and what comes with them: sinks, chunks, windows."""

from __future__ import annotations

from typing import Any

from tests.oracles.hf_models import SIZES, Case

MIXTRAL = {**SIZES, "num_local_experts": 5, "num_experts_per_tok": 2}
QWEN3_MOE = {**SIZES, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
QWEN2_MOE = {
    **{field: size for field, size in QWEN3_MOE.items() if field != "head_dim"},
    "hidden_size": 72,
    "shared_expert_intermediate_size": 28,
}
GPT_OSS = {**MIXTRAL, "sliding_window": 5, "num_experts_per_tok": 3}
LLAMA4 = {**MIXTRAL, "num_hidden_layers": 4, "intermediate_size_mlp": 28, "attention_chunk_size": 7}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 2.0,
    "truncate": False,
}


def _rope(**options: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, **options}}


CASES: dict[str, Case] = {
    "mixtral": Case("MixtralConfig", {**MIXTRAL, **_rope()}),
    "mixtral windowed, one expert each": Case("MixtralConfig", {**MIXTRAL, "sliding_window": 5, "num_experts_per_tok": 1}),
    "mixtral older config": Case("MixtralConfig", MIXTRAL, {"rope_parameters": ..., "rope_theta": 1e6, "head_dim": 8}),
    "qwen2 moe": Case("Qwen2MoeConfig", QWEN2_MOE),
    "qwen2 moe, some layers dense, some windowed": Case(
        "Qwen2MoeConfig",
        {
            **QWEN2_MOE,
            "norm_topk_prob": True,
            "qkv_bias": False,
            "decoder_sparse_step": 2,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
        },
    ),
    "qwen2 moe older config": Case(
        "Qwen2MoeConfig",
        {**QWEN2_MOE, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
        {"layer_types": ..., "rope_parameters": ..., "rope_theta": 10_000.0, "qkv_bias": ...},
    ),
    "qwen3 moe": Case("Qwen3MoeConfig", QWEN3_MOE),
    "qwen3 moe normalised, first layer dense": Case(
        "Qwen3MoeConfig", {**QWEN3_MOE, "norm_topk_prob": True, "mlp_only_layers": [0], "attention_bias": True}
    ),
    "qwen3 moe older config, windowed": Case(
        "Qwen3MoeConfig",
        {**QWEN3_MOE, "use_sliding_window": True, "sliding_window": 5},
        {"num_local_experts": ..., "num_experts": 5, "rope_parameters": ..., "rope_theta": 10_000.0},
    ),
    "gpt-oss": Case("GptOssConfig", {**GPT_OSS, "rope_parameters": YARN}),
    "gpt-oss tightly clamped, default rotary": Case("GptOssConfig", {**GPT_OSS, "swiglu_limit": 0.7, "sliding_window": 3}),
    "gpt-oss other layers, older config": Case(
        "GptOssConfig",
        {
            **GPT_OSS,
            "rope_parameters": YARN,
            "attention_bias": False,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        },
        {"rope_parameters": ..., "rope_theta": 100.0, "rope_scaling": {k: v for k, v in YARN.items() if k != "rope_theta"}},
    ),
    "llama4": Case("Llama4TextConfig", {**LLAMA4, **_rope()}),
    "llama4, a step in its rotary scaling": Case(
        "Llama4TextConfig",
        {
            **LLAMA4,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 100.0,
                "factor": 16.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 1.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "llama4 without QK-norm, experts in every layer": Case(
        "Llama4TextConfig",
        {**LLAMA4, "use_qk_norm": False, "num_experts_per_tok": 1, "attention_bias": True, "no_rope_layer_interval": 3},
    ),
    "llama4 alternating experts, unchunked": Case(
        "Llama4TextConfig",
        {**LLAMA4, "interleave_moe_layer_step": 2, "attention_chunk_size": None, "no_rope_layers": [1, 0, 0, 1]},
    ),
}
