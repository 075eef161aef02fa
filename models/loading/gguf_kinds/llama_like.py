"""Kinds with Llama's layers, or nearly: its own, and those of Qwen, Gemma, Phi-3, GLM-4, OLMo, SmolLM3, Granite and gpt-oss."""

from __future__ import annotations

from ..gguf_facts import LLAMA, WINDOW, Facts, Fields
from .kind import Kind

ROTATED_PAIRS = {".attn.q.": "half_split_rows", ".attn.k.": "half_split_rows"}
"""Files of these kinds hold the pairs of rotary dimensions side by side."""

GAINS_WITH_ONE = {"ln": "minus_one", "_norm": "minus_one"}
"""Files of these kinds hold norms' gains with their 1."""

FUSED_GATE = {".mlp.gate.": "first_half", ".mlp.up.": "second_half"}
GATE_IN_UP = {"blocks.{l}.mlp.gate": "blk.{l}.ffn_up"}
"""Files of these kinds hold gate and up weights in one."""

EXPERTS = {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"}
CAPPED = {"final_logit_softcapping": "final_logit_softcapping?"}
PARTLY_ROTATED = ("rope.dimension_count",)
LONG_ROPE = {"original_max_position_embeddings": "rope.scaling.original_context_length?"}


def rotated_part(facts: Facts, hf: Fields) -> Fields:
    """The part of each head that is rotated."""
    return {"partial_rotary_factor": facts.rotated_part()}


def _layer_types(facts: Facts, hf: Fields) -> Fields:
    return facts.layer_types()


def _gemma_scale(hf: Fields, largest: int) -> Fields:
    """The scores' scale, which only the largest model, known by its number of layers, sets apart."""
    is_largest = hf["num_hidden_layers"] == largest
    return {"query_pre_attn_scalar": hf["hidden_size"] / hf["num_attention_heads"] if is_largest else hf["head_dim"]}


def _gemma2(facts: Facts, hf: Fields) -> Fields:
    return _gemma_scale(hf, 46) | facts.layer_types()


def _gemma3(facts: Facts, hf: Fields) -> Fields:
    """Windows, and the two rotary bases."""
    full = {**hf["rope_scaling"], "rope_theta": facts("rope.freq_base", 1_000_000.0)}
    sliding = {"rope_theta": facts("rope.freq_base_swa", 10_000.0)}
    return {
        **_gemma_scale(hf, 62),
        **facts.layer_types(),
        "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
    }


def _granite(facts: Facts, hf: Fields) -> Fields:
    return {"attention_multiplier": facts("attention.scale", hf["head_dim"] ** -0.5)}


def _mistral3(facts: Facts, hf: Fields) -> Fields:
    """YaRN leaves the scores' scale alone; queries grow with their position."""
    growth = {"llama_4_scaling_beta": facts("attention.temperature_scale", 0.0)}
    return {"rope_parameters": {**hf["rope_scaling"], "mscale": 1.0, "mscale_all_dim": 1.0, **growth}}


def _gpt_oss(facts: Facts, hf: Fields) -> Fields:
    return facts.layer_types() | {"rope_scaling": {**hf["rope_scaling"], "truncate": False}}


def _fused_gate(architecture: str, family: str, fields: dict[str, str], *handled: str) -> Kind:
    return Kind(architecture, family, fields, rotated_part, FUSED_GATE, GATE_IN_UP, (*PARTLY_ROTATED, *handled))


LLAMA_LIKE = (
    Kind(
        "llama",
        lambda facts: "mixtral" if facts("expert_count") else "llama",
        {**LLAMA, "num_local_experts": "expert_count?", "num_experts_per_tok": "expert_used_count?"},
        transforms=ROTATED_PAIRS,
    ),
    Kind("qwen2", "qwen2", LLAMA),
    Kind("qwen3", "qwen3", LLAMA),
    Kind(
        "qwen2moe",
        "qwen2_moe",
        {
            **LLAMA,
            **EXPERTS,
            "moe_intermediate_size": "expert_feed_forward_length?",
            "shared_expert_intermediate_size": "expert_shared_feed_forward_length?",
        },
    ),
    Kind(
        "qwen3moe",
        "qwen3_moe",
        {**LLAMA, **EXPERTS, "moe_intermediate_size": "expert_feed_forward_length"},
        lambda facts, hf: {"norm_topk_prob": True},
    ),
    Kind("gemma", "gemma", LLAMA, transforms=GAINS_WITH_ONE),
    Kind(
        "gemma2",
        "gemma2",
        {**LLAMA, **WINDOW, **CAPPED, "attn_logit_softcapping": "attn_logit_softcapping?"},
        _gemma2,
        GAINS_WITH_ONE,
    ),
    Kind("gemma3", "gemma3_text", {**LLAMA, **WINDOW, **CAPPED}, _gemma3, GAINS_WITH_ONE),
    _fused_gate("phi3", "phi3", {**LLAMA, **WINDOW, **LONG_ROPE}, "rope.scaling.attn_factor"),
    _fused_gate("glm4", "glm4", LLAMA),
    _fused_gate("chatglm", "glm", LLAMA),
    Kind(
        "olmo2",
        lambda facts: "olmo3" if facts("attention.sliding_window") else "olmo2",
        {**LLAMA, **WINDOW},
        _layer_types,
    ),
    Kind("smollm3", "smollm3", LLAMA, transforms=ROTATED_PAIRS),
    Kind(
        "granite",
        "granite",
        {
            **LLAMA,
            "embedding_multiplier": "embedding_scale?",
            "residual_multiplier": "residual_scale?",
            "logits_scaling": "logit_scale?",
        },
        _granite,
        ROTATED_PAIRS,
    ),
    Kind("mistral3", "ministral3", LLAMA, _mistral3, ROTATED_PAIRS, handled=("rope.scaling.yarn_log_multiplier",)),
    Kind(
        "gpt-oss",
        "gpt_oss",
        {
            **LLAMA,
            **WINDOW,
            "intermediate_size": "expert_feed_forward_length",
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
        },
        _gpt_oss,
        names={"blocks.{l}.ln2": "blk.{l}.ffn_norm|blk.{l}.post_attention_norm"},
    ),
)
