"""Tiny random models of the decoder families that differ in positions: ALiBi, offsets, partial, interleaved and long rotation."""

from __future__ import annotations

from typing import Any

from tests.oracles.hf_models import Case

SIZES = {
    "vocab_size": 61,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 64,
}
GATED = {**SIZES, "intermediate_size": 44, "num_key_value_heads": 2}
GPT_SIZES = {"vocab_size": 61, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64}
BLOOM_SIZES = {"vocab_size": 61, "hidden_size": 48, "n_layer": 3, "n_head": 6}
MPT_SIZES = {"vocab_size": 61, "d_model": 48, "n_layers": 3, "n_heads": 6, "max_seq_len": 64}
NEO_SIZES = {"vocab_size": 61, "hidden_size": 48, "num_layers": 3, "num_heads": 6, "max_position_embeddings": 64}
SHORT = [1.0, 1.1, 1.3, 1.6]
LONG = [1.0, 1.5, 3.0, 6.0]


def _falcon(**options: Any) -> Case:
    return Case("FalconConfig", {**SIZES, "ffn_hidden_size": 40, **options})


def _longrope(original: int, **options: Any) -> dict[str, Any]:
    parameters = {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": SHORT, "long_factor": LONG, **options}
    return {"rope_parameters": parameters, "original_max_position_embeddings": original}


def _rope(kind: str = "default", **options: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **options}}


CASES: dict[str, Case] = {
    "llama proportional": Case("LlamaConfig", {**GATED, **_rope("proportional", partial_rotary_factor=0.5, factor=2.0)}),
    "bloom": Case("BloomConfig", BLOOM_SIZES),
    "bloom 8 heads, untied": Case("BloomConfig", {**BLOOM_SIZES, "n_head": 8, "tie_word_embeddings": False}),
    "bloom older config": Case(
        "BloomConfig",
        BLOOM_SIZES,
        {"hidden_size": ..., "n_embed": 48, "n_head": ..., "num_attention_heads": 6, "seq_length": 64},
    ),
    "mpt": Case("MptConfig", MPT_SIZES),
    "mpt 4 heads, scale stated": Case("MptConfig", {**MPT_SIZES, "n_heads": 4, "attn_config": {"softmax_scale": 0.4}}),
    "mpt untied, no attention options": Case(
        "MptConfig", {**MPT_SIZES, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-2}, {"attn_config": ...}
    ),
    "falcon": _falcon(),
    "falcon grouped": _falcon(new_decoder_architecture=True, num_kv_heads=2, **_rope()),
    "falcon grouped, one norm": _falcon(
        new_decoder_architecture=True, num_kv_heads=3, num_ln_in_parallel_attn=1, tie_word_embeddings=False
    ),
    "falcon multi-head, sequential, biases": _falcon(multi_query=False, parallel_attn=False, bias=True),
    # The plain attention of this family adds its biases twice, so the fused one is the oracle.
    "falcon alibi": Case(
        "FalconConfig",
        # With 12 heads, some slopes are no powers of two, and so are rounded.
        {**SIZES, "num_attention_heads": 12, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
        attention="sdpa",
    ),
    "falcon alibi, multi-query": Case("FalconConfig", {**SIZES, "alibi": True}, attention="sdpa"),
    "bigcode": Case("GPTBigCodeConfig", GPT_SIZES),
    "bigcode multi-head, unscaled": Case(
        "GPTBigCodeConfig", {**GPT_SIZES, "multi_query": False, "scale_attn_weights": False, "n_inner": 20}
    ),
    "opt": Case("OPTConfig", {**SIZES, "ffn_dim": 44}),
    "opt post-norm, untied": Case(
        "OPTConfig", {**SIZES, "ffn_dim": 44, "do_layer_norm_before": False, "tie_word_embeddings": False}
    ),
    "opt no biases, no final norm, gelu": Case(
        "OPTConfig",
        {
            **SIZES,
            "ffn_dim": 44,
            "enable_bias": False,
            "activation_function": "gelu",
            "_remove_final_layer_norm": True,
        },
    ),
    "gptj": Case("GPTJConfig", {**GPT_SIZES, "rotary_dim": 4}),
    "gptj tied, all rotated": Case("GPTJConfig", {**GPT_SIZES, "rotary_dim": 8, "n_inner": 20, "tie_word_embeddings": True}),
    "gpt_neo": Case(
        "GPTNeoConfig", {**NEO_SIZES, "attention_types": [[["global", "local"], 1], [["local"], 1]], "window_size": 5}
    ),
    "gpt_neo global, untied": Case(
        "GPTNeoConfig",
        {**NEO_SIZES, "attention_types": [[["global"], 3]], "intermediate_size": 20, "tie_word_embeddings": False},
    ),
    "phi": Case("PhiConfig", {**SIZES, "intermediate_size": 44}),
    "phi older config": Case(
        "PhiConfig",
        {**GATED, **_rope(partial_rotary_factor=0.25)},
        {"rope_parameters": ..., "rope_theta": 100.0, "partial_rotary_factor": 0.25},
    ),
    "phi3": Case("Phi3Config", GATED),
    "phi3 windowed, partly rotated, tied": Case(
        "Phi3Config", {**GATED, "sliding_window": 5, "tie_word_embeddings": True, **_rope(partial_rotary_factor=0.75)}
    ),
    "phi3 longrope, past its length": Case("Phi3Config", {**GATED, **_longrope(16)}),
    "phi3 longrope, within its length": Case("Phi3Config", {**GATED, **_longrope(48, factor=4.0)}),
    "phi3 longrope, factor stated": Case("Phi3Config", {**GATED, **_longrope(16, attention_factor=1.3)}),
    "phi3 older config": Case(
        "Phi3Config",
        {**GATED, **_longrope(16)},
        {
            "rope_parameters": ...,
            "rope_theta": 100.0,
            "rope_scaling": {"type": "su", "short_factor": SHORT, "long_factor": LONG},
        },
    ),
    "glm": Case("GlmConfig", {**GATED, "head_dim": 8}),
    "glm4": Case("Glm4Config", {**GATED, "head_dim": 12, "num_attention_heads": 9, "num_key_value_heads": 3}),
    "glm4 no biases, tied, linear": Case(
        "Glm4Config",
        {**GATED, "head_dim": 8, "attention_bias": False, "tie_word_embeddings": True}
        | _rope("linear", factor=4.0, partial_rotary_factor=1.0),
    ),
    "stablelm": Case("StableLmConfig", GATED),
    "stablelm parallel, biases": Case("StableLmConfig", {**GATED, "use_parallel_residual": True, "use_qkv_bias": True}),
}
