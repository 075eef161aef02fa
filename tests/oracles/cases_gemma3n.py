"""Tiny random Gemma 3n text models of Hugging Face: more layers than those that share, and gates that few tokens open."""

from __future__ import annotations

from tests.oracles.hf_models import Case

GEMMA3N_SIZES = {
    "vocab_size": 61,
    "hidden_size": 36,
    "intermediate_size": [44, 44, 52, 44, 44, 52, 44],
    "activation_sparsity_pattern": [0.8, 0.6, 0.0, 0.8, 0.0, 0.8, 0.0],
    "num_hidden_layers": 7,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
    "hidden_size_per_layer_input": 10,
    "vocab_size_per_layer_input": 61,
    "num_kv_shared_layers": 3,
    "altup_num_inputs": 4,
    "laurel_rank": 6,
}

CASES: dict[str, Case] = {
    "gemma3n": Case("Gemma3nTextConfig", GEMMA3N_SIZES),
    "gemma3n older config": Case(
        "Gemma3nTextConfig", GEMMA3N_SIZES, {"rope_parameters": ..., "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0}
    ),
    "gemma3n own choices": Case(
        "Gemma3nTextConfig",
        {
            **GEMMA3N_SIZES,
            "intermediate_size": 40,
            "activation_sparsity_pattern": None,
            "layer_types": None,
            "num_kv_shared_layers": 0,
            "altup_num_inputs": 3,
            "altup_active_idx": 1,
            "altup_correct_scale": False,
            "attention_bias": True,
            "tie_word_embeddings": False,
            "final_logit_softcapping": 4.0,
            "vocab_size_per_layer_input": 50,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
            },
        },
    ),
}
