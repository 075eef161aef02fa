"""Tiny random models with latent attention: DeepSeek V2, V3 and V3.2, GLM-5. Indexers choose fewer keys than there are tokens."""

from __future__ import annotations

from typing import Any

from tests.oracles.hf_models import Case

SIZES = {
    "vocab_size": 61,
    "hidden_size": 36,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 9,
    "num_key_value_heads": 9,
    "max_position_embeddings": 64,
    "kv_lora_rank": 10,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
    "first_k_dense_replace": 1,
}
GROUPED = {**SIZES, "n_group": 3, "topk_group": 2}
# With many index heads hardly any two keys have a score of exactly 0, so that no tie decides what is chosen.
INDEXED = {**GROUPED, "index_topk": 5, "index_head_dim": 8, "index_n_heads": 12}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 2.0,
    "mscale": 0.9,
    "mscale_all_dim": 0.7,
}


def _yarn(**options: Any) -> dict[str, Any]:
    return {"max_position_embeddings": 64, "rope_parameters": {**YARN, **options}}


CASES: dict[str, Case] = {
    "deepseek2": Case("DeepseekV2Config", SIZES),
    "deepseek2, queries without latent, grouped routing": Case(
        "DeepseekV2Config",
        {**GROUPED, "q_lora_rank": None, "topk_method": "group_limited_greedy", "routed_scaling_factor": 1.7},
    ),
    "deepseek2 yarn, biases": Case("DeepseekV2Config", {**SIZES, **_yarn(), "attention_bias": True}),
    "deepseek2 older config": Case(
        "DeepseekV2Config",
        {**SIZES, **_yarn(mscale=0.7)},
        {
            "rope_parameters": ...,
            "rope_theta": 100.0,
            "rope_scaling": {"type": "yarn", **{k: v for k, v in YARN.items() if k[:4] != "rope"}, "mscale": 0.7},
        },
    ),
    "deepseek3": Case("DeepseekV3Config", GROUPED),
    "deepseek3, queries without latent": Case("DeepseekV3Config", {**GROUPED, "q_lora_rank": None, "norm_topk_prob": False}),
    "deepseek3 yarn, halves": Case("DeepseekV3Config", {**GROUPED, **_yarn(), "rope_interleave": False}),
    "deepseek3 all dense, biases, eps": Case(
        "DeepseekV3Config", {**GROUPED, "first_k_dense_replace": 3, "attention_bias": True, "rms_norm_eps": 1e-2}
    ),
    "deepseek32": Case("DeepseekV32Config", INDEXED),
    "deepseek32 yarn, layers listed": Case(
        "DeepseekV32Config", {**INDEXED, **_yarn(), "mlp_layer_types": ["sparse", "dense", "sparse"]}
    ),
    "glm5": Case("GlmMoeDsaConfig", {**INDEXED, "index_topk_freq": 2}),
    "glm5, each its own choice": Case("GlmMoeDsaConfig", INDEXED),
}
