"""Tiny Hugging Face models with linear mixers: Mamba-2, OLMo Hybrid, Qwen3-Next, MiniMax, Kimi Linear."""

from __future__ import annotations

from tests.oracles.hf_models import Case

_SIZES = {"vocab_size": 61, "hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 3, "max_position_embeddings": 64}
_LAYERS = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
_MAMBA2 = {
    **{"vocab_size": 61, "hidden_size": 36, "num_hidden_layers": 3, "num_heads": 9, "head_dim": 8, "expand": 2},
    **{"state_size": 5, "n_groups": 3, "chunk_size": 8},
}
# The key and value widths are equal because Hugging Face writes the three convolutions of a checkpoint in equal parts.
_OLMO = {
    **_SIZES,
    **_LAYERS,
    **{"num_attention_heads": 9, "num_key_value_heads": 3, "linear_num_key_heads": 3, "linear_num_value_heads": 6},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 4},
}
# Where a head finds next to nothing, the norm that follows blows up rounding errors; a large epsilon keeps them small.
_QWEN = {
    **_SIZES,
    **_LAYERS,
    **{"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8, "linear_num_key_heads": 3, "linear_num_value_heads": 6},
    **{"linear_key_head_dim": 5, "linear_value_head_dim": 4, "num_experts": 6, "num_experts_per_tok": 2},
    **{"moe_intermediate_size": 12, "shared_expert_intermediate_size": 10, "rms_norm_eps": 1e-2},
}
_KIMI = {
    **_SIZES,
    **_LAYERS,
    **{"num_attention_heads": 9, "num_key_value_heads": 9, "kv_lora_rank": 10, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6},
    **{"v_head_dim": 7, "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "linear_head_dim": 5},
    **{"linear_num_heads": 3, "mlp_layer_types": ["dense", "sparse", "sparse"], "rms_norm_eps": 1e-2},
}
# Hugging Face counts the tokens of its cache in the first layer, which must have keys then.
_MINIMAX = {
    **_SIZES,
    "layer_types": ["full_attention", "linear_attention", "linear_attention"],
    **{"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2},
    "block_size": 7,
}

CASES: dict[str, Case] = {
    "mamba2": Case("Mamba2Config", _MAMBA2),
    "mamba2 one group, no convolution bias, tied": Case(
        "Mamba2Config", {**_MAMBA2, "n_groups": 1, "use_conv_bias": False, "conv_kernel": 3, "tie_word_embeddings": True}
    ),
    "olmo hybrid": Case("OlmoHybridConfig", _OLMO),
    "olmo hybrid, no rotation, positive eigenvalues": Case(
        "OlmoHybridConfig",
        {**_OLMO, "linear_allow_neg_eigval": False, "linear_num_value_heads": 3, "linear_value_head_dim": 8}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": None}},
    ),
    "qwen3-next": Case("Qwen3NextConfig", _QWEN),
    "qwen3-next, some dense layers, biases": Case(
        "Qwen3NextConfig", {**_QWEN, "mlp_only_layers": [0, 1], "attention_bias": True, "norm_topk_prob": False}
    ),
    "qwen3-next, layers by interval": Case(
        "Qwen3NextConfig",
        {**_QWEN, "layer_types": ["linear_attention", "linear_attention", "full_attention"], "decoder_sparse_step": 2},
        {"layer_types": ..., "full_attention_interval": 3},
    ),
    "kimi linear": Case("KimiLinearConfig", _KIMI),
    "kimi linear, latent queries, grouped routing": Case(
        "KimiLinearConfig",
        {**_KIMI, "q_lora_rank": 14, "n_group": 3, "topk_group": 2, "norm_topk_prob": False, "attention_bias": True},
    ),
    "kimi linear older config": Case(
        "KimiLinearConfig",
        _KIMI,
        {
            **{"layer_types": ..., "mlp_layer_types": ..., "first_k_dense_replace": 1, "linear_head_dim": ...},
            **{"linear_num_heads": ..., "linear_conv_kernel_dim": ...},
            "linear_attn_config": {
                **{"full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 5, "num_heads": 3, "short_conv_kernel_size": 4}
            },
        },
    ),
    "minimax": Case("MiniMaxConfig", _MINIMAX),
    "minimax, scaled stream": Case(
        "MiniMaxConfig",
        {
            **{**_MINIMAX, "full_attn_alpha_factor": 1.7, "linear_attn_alpha_factor": 1.3, "mlp_alpha_factor": 0.6},
            **{"full_attn_beta_factor": 0.8, "linear_attn_beta_factor": 0.8, "mlp_beta_factor": 0.8, "sliding_window": 5},
        },
    ),
}
