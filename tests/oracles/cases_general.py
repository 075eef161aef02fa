"""Newer dense decoders: norms of outputs, layers without positions, parallel blocks, multipliers, differential attention."""

from __future__ import annotations

from tests.oracles.hf_models import LLAMA3, SIZES, YARN, Case

WIDE = {**{k: v for k, v in SIZES.items() if k != "head_dim"}, "hidden_size": 72}
COHERE_SIZES = {**WIDE, "logit_scale": 0.25}
GRANITE_SIZES = {
    **WIDE,
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.6,
    "logits_scaling": 1.7,
}
DIFF_SIZES = {**SIZES, "num_attention_heads": 18, "num_key_value_heads": 6, "head_dim": 4}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
DEFAULT = {"rope_type": "default", "rope_theta": 100.0}
LONG_YARN = {"rope_type": "yarn", "rope_theta": 5000.0, **YARN}
GROWING = {**LONG_YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4, "original_max_position_embeddings": 5}

CASES: dict[str, Case] = {
    "olmo2": Case("Olmo2Config", WIDE),
    "olmo2 multi-head, biases, tied": Case(
        "Olmo2Config", {**WIDE, "num_key_value_heads": 9, "attention_bias": True, "tie_word_embeddings": True}
    ),
    "olmo3": Case("Olmo3Config", {**WIDE, "sliding_window": 5, "layer_types": MIXED}),
    "olmo3 stretched in full layers": Case(
        "Olmo3Config",
        {
            **WIDE,
            "sliding_window": 5,
            "layer_types": MIXED,
            "rope_parameters": {"sliding_attention": DEFAULT, "full_attention": LONG_YARN},
        },
    ),
    "olmo3 older config": Case(
        "Olmo3Config",
        {
            **WIDE,
            "num_hidden_layers": 4,
            "sliding_window": 5,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 500_000.0},
                "full_attention": {"rope_type": "yarn", "rope_theta": 500_000.0, **YARN},
            },
        },
        {"layer_types": ..., "rope_parameters": ..., "rope_theta": 500_000.0, "rope_scaling": {"rope_type": "yarn", **YARN}},
    ),
    "cohere": Case("CohereConfig", COHERE_SIZES),
    "cohere norms of queries and keys": Case(
        "CohereConfig", {**COHERE_SIZES, "use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False}
    ),
    "cohere older config": Case("CohereConfig", COHERE_SIZES, {"rope_parameters": ..., "rope_theta": 500_000.0}),
    "cohere2": Case("Cohere2Config", {**COHERE_SIZES, "sliding_window": 5, "layer_types": MIXED}),
    "cohere2 older config": Case(
        "Cohere2Config",
        {**COHERE_SIZES, "sliding_window": 5, "layer_types": MIXED},
        {"layer_types": ..., "sliding_window_pattern": 2, "rope_parameters": ..., "rope_theta": 10_000.0},
    ),
    "smollm3": Case("SmolLM3Config", {**WIDE, "no_rope_layer_interval": 2}),
    "smollm3 listed, untied, biases": Case(
        "SmolLM3Config",
        {
            **WIDE,
            "no_rope_layers": [0, 1, 0],
            "tie_word_embeddings": False,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {"rope_type": "llama3", "rope_theta": 100.0, **LLAMA3},
        },
    ),
    "smollm3 windows": Case(
        "SmolLM3Config", {**WIDE, "no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 5}
    ),
    "smollm3 windows older config": Case(
        "SmolLM3Config",
        {**WIDE, "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 5},
        {"layer_types": ..., "no_rope_layers": ...},
    ),
    "smollm3 windows elsewhere": Case(
        "SmolLM3Config",
        {**WIDE, "no_rope_layers": [1, 0, 0], "use_sliding_window": True, "sliding_window": 5, "layer_types": MIXED},
    ),
    "granite": Case("GraniteConfig", GRANITE_SIZES),
    "granite tied, biases": Case(
        "GraniteConfig", {**GRANITE_SIZES, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}
    ),
    "ministral3": Case("Ministral3Config", {**SIZES, "rope_parameters": GROWING}),
    "ministral3 windowed": Case("Ministral3Config", {**SIZES, "rope_parameters": GROWING, "sliding_window": 5}),
    "diffllama": Case("DiffLlamaConfig", DIFF_SIZES),
    "diffllama multi-query, biases": Case("DiffLlamaConfig", {**DIFF_SIZES, "num_key_value_heads": 2, "attention_bias": True}),
    "diffllama llama3": Case(
        "DiffLlamaConfig", {**DIFF_SIZES, "rope_parameters": {"rope_type": "llama3", "rope_theta": 100.0, **LLAMA3}}
    ),
}
