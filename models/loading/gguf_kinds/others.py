"""Kinds with layers of their own: Cohere's, the GPTs, models with ALiBi, DeepSeek, Mamba-2, BERT and T5."""

from __future__ import annotations

from ..families.fields import NUMBER, SIZE
from ..gguf_facts import GROUPS, LAYER_NORM, RMS_NORM, ROPE, SIZES, WINDOW, Facts, Fields
from .kind import Kind
from .llama_like import PARTLY_ROTATED, rotated_part

GPT2 = {
    "n_layer": "block_count",
    "n_embd": "embedding_length",
    "n_head": "attention.head_count",
    "n_inner": "feed_forward_length",
    "n_positions": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
NORMED = {**SIZES, **GROUPS, **ROPE, **LAYER_NORM}
ALIBI = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "seq_length": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
MPT = {
    "n_layers": "block_count",
    "d_model": "embedding_length",
    "n_heads": "attention.head_count",
    "max_seq_len": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
FALCON = {
    **{ours: theirs for ours, theirs in SIZES.items() if ours != "intermediate_size"},
    **ROPE,
    "num_kv_heads": "attention.head_count_kv?",
    "ffn_hidden_size": "feed_forward_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}
DEEPSEEK = {
    **SIZES,
    **RMS_NORM,
    **ROPE,
    "q_lora_rank": "attention.q_lora_rank?",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
    "first_k_dense_replace": "leading_dense_block_count?",
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count?",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "routed_scaling_factor": "expert_weights_scale?",
    "norm_topk_prob": "expert_weights_norm?",
    "n_group": "expert_group_count?",
    "topk_group": "expert_group_used_count?",
}
MAMBA2 = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_heads": "ssm.time_step_rank",
    "state_size": "ssm.state_size",
    "n_groups": "ssm.group_count",
    "conv_kernel": "ssm.conv_kernel",
    "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
}
T5 = {
    "d_model": "embedding_length",
    "d_kv": "attention.key_length",
    "d_ff": "feed_forward_length",
    "num_layers": "block_count",
    "num_decoder_layers": "decoder_block_count?",
    "num_heads": "attention.head_count",
    "n_positions": "context_length",
    "relative_attention_num_buckets": "attention.relative_buckets_count",
    "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
    "decoder_start_token_id": "decoder_start_token_id?",
}

SIGMOID = 2
"""The number of the gate that makes of each expert's score a probability of its own."""

PUBLISHED_GROUPS = {160: (8, 3), 256: (8, 4)}
"""By number of experts, the groups of DeepSeek V2 and V3, and how many of them are chosen; older files do not say."""


def _stablelm(facts: Facts, hf: Fields) -> Fields:
    return rotated_part(facts, hf) | {"use_parallel_residual": not facts.has("blk.0.ffn_norm.weight")}


def _falcon(facts: Facts, hf: Fields) -> Fields:
    """All sizes fit the newer architecture, with one norm or two."""
    return {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 2 if facts.has("blk.0.attn_norm_2.weight") else 1}


def _mpt(facts: Facts, hf: Fields) -> Fields:
    largest = facts.checked("attention.max_alibi_bias", NUMBER, 0.0)
    clip = facts.checked("attention.clamp_kqv", NUMBER, 0.0)
    return {
        # Half more than a whole number, so that rounding down the width times this cannot fall short of it.
        "expansion_ratio": (facts.checked("feed_forward_length", SIZE) + 0.5) / hf["d_model"],
        "attn_config": {"alibi": largest > 0, "alibi_bias_max": largest, "clip_qkv": clip},
    }


def _is_deepseek3(facts: Facts) -> bool:
    return facts("expert_gating_func") == SIGMOID


def _deepseek(facts: Facts, hf: Fields) -> Fields:
    """Widths of the parts of a head, groups of experts, and what YaRN makes of the scores' scale.

    Newer files give the widths of latents as those of heads, and those of heads apart ("mla").
    """
    groups, chosen = PUBLISHED_GROUPS.get(hf["n_routed_experts"], (1, 1))
    groups, chosen = hf.get("n_group", groups), hf.get("topk_group", chosen)
    width = facts.checked("attention.key_length_mla", SIZE, facts.d_head())
    return {
        "q_lora_rank": hf.get("q_lora_rank"),
        "qk_nope_head_dim": width - hf["qk_rope_head_dim"],
        "v_head_dim": facts("attention.value_length_mla", facts("attention.value_length")),
        "first_k_dense_replace": hf.get("first_k_dense_replace", 0),
        "n_group": groups,
        "topk_group": chosen,
        "topk_method": "noaux_tc" if _is_deepseek3(facts) else "group_limited_greedy" if groups > 1 else "greedy",
        "rope_scaling": hf["rope_scaling"] | _mscale(facts),
    }


def _mscale(facts: Facts) -> Fields:
    """YaRN's factor on the scores. Files state one of its two parts, a tenth of it; in all published models both are the same."""
    part = 10 * facts.checked("rope.scaling.yarn_log_multiplier", NUMBER, 0.0)
    return {"mscale": part, "mscale_all_dim": part} if part else {}


def _mamba2(facts: Facts, hf: Fields) -> Fields:
    width = facts.checked("ssm.inner_size", SIZE)
    return {"head_dim": width // hf["num_heads"], "use_conv_bias": facts.has("blk.0.ssm_conv1d.bias")}


def _bert(facts: Facts, hf: Fields) -> Fields:
    types = facts.tensors.get("token_types.weight")
    return {"type_vocab_size": 0 if types is None else types.shape[0]}


def _t5(facts: Facts, hf: Fields) -> Fields:
    """Tied models scale their logits; a gate is told by its tensor."""
    return {
        "feed_forward_proj": "gated-gelu" if facts.has("enc.blk.0.ffn_gate.weight") else "relu",
        "scale_decoder_outputs": hf["tie_word_embeddings"],
        "pad_token_id": facts.metadata.get("tokenizer.ggml.padding_token_id", 0),
    }


MAMBA2_NAMES = {
    **{f"blocks.{{l}}.attn.{part}": "blk.{l}.ssm_in" for part in "qkv"},
    "blocks.{l}.attn.o": "blk.{l}.ssm_out",
    "blocks.{l}.attn.dt.weight": "blk.{l}.ssm_in.weight",
    "blocks.{l}.attn.dt.bias": "blk.{l}.ssm_dt.bias",
    "blocks.{l}.attn.out_steps.gated_norm.gate.weight": "blk.{l}.ssm_in.weight",
    "blocks.{l}.attn.out_steps.gated_norm.weight": "blk.{l}.ssm_norm.weight",
    "blocks.{l}.attn.log_rate": "blk.{l}.ssm_a",
    "blocks.{l}.attn.D": "blk.{l}.ssm_d",
    **{f"blocks.{{l}}.attn.conv_{part}.{kind}": f"blk.{{l}}.ssm_conv1d.{kind}" for part in "qkv" for kind in ("weight", "bias")},
}
MAMBA2_TRANSFORMS = {
    **{f".attn.{part}.": f"zvkqd_{part}" for part in "qkv"},
    **{f".conv_{part}.": f"flat_vkq_{part}" for part in "qkv"},
    ".dt.weight": "zvkqd_d",
    ".gated_norm.gate.": "zvkqd_z",
    ".gated_norm.weight": "norm_groups",
    ".log_rate": "log_of_rates",
    ".attn.D": "only_column",
}

OTHERS = (
    Kind(
        "command-r",
        "cohere",
        {**NORMED, "logit_scale": "logit_scale"},
        lambda facts, hf: {"use_qk_norm": facts.has("blk.0.attn_q_norm.weight")},
    ),
    Kind(
        "cohere2",
        "cohere2",
        {**NORMED, **WINDOW, "head_dim": "attention.key_length?", "logit_scale": "logit_scale"},
        lambda facts, hf: facts.layer_types(),
    ),
    Kind("stablelm", "stablelm", NORMED, _stablelm, handled=PARTLY_ROTATED),
    Kind("phi2", "phi", NORMED, rotated_part, handled=PARTLY_ROTATED),
    Kind("gpt2", "gpt2", GPT2),
    Kind("starcoder", "gpt_bigcode", GPT2),
    Kind(
        "gptneox",
        "gpt_neox",
        {**SIZES, **LAYER_NORM, "rotary_emb_base": "rope.freq_base?", "use_parallel_residual": "use_parallel_residual?"},
        lambda facts, hf: {"rotary_pct": facts.rotated_part()},
        handled=PARTLY_ROTATED,
    ),
    Kind(
        "falcon",
        "falcon",
        FALCON,
        _falcon,
        names={"blocks.{l}.ln1": "blk.{l}.attn_norm_2|blk.{l}.attn_norm", "blocks.{l}.ln2": "blk.{l}.attn_norm"},
    ),
    Kind("bloom", "bloom", ALIBI),
    Kind("mpt", "mpt", MPT, _mpt, handled=("attention.clamp_kqv",)),
    Kind(
        "deepseek2",
        lambda facts: "deepseek_v3" if _is_deepseek3(facts) else "deepseek_v2",
        DEEPSEEK,
        _deepseek,
        handled=("attention.value_length", "rope.scaling.yarn_log_multiplier"),
    ),
    Kind("mamba2", "mamba2", MAMBA2, _mamba2, MAMBA2_TRANSFORMS, MAMBA2_NAMES),
    Kind(
        "bert",
        "bert",
        {**SIZES, **LAYER_NORM},
        _bert,
        names={"blocks.{l}.ln1": "blk.{l}.attn_output_norm", "blocks.{l}.ln2": "blk.{l}.layer_output_norm"},
        handled=("attention.causal",),
    ),
    Kind("t5", lambda facts: "umt5" if facts.has("enc.blk.1.attn_rel_b.weight") else "t5", T5, _t5),
)
