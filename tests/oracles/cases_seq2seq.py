"""Tiny random encoder-decoders of Hugging Face, and decoder-only models whose layers share keys and values."""

from __future__ import annotations

from typing import Any

import torch

from tests.oracles.hf_models import Case, randomise

T5_SIZES = {
    "vocab_size": 61,
    "d_model": 24,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 5,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}
BART_SIZES = {
    "vocab_size": 61,
    "d_model": 24,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "pad_token_id": 46,
}
MARIAN_SIZES = {**BART_SIZES, "activation_function": "swish", "scale_embedding": True}

GEMMA4_SIZES = {
    "vocab_size": 61,
    "hidden_size": 36,
    "intermediate_size": 44,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "global_head_dim": 12,
    "max_position_embeddings": 64,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "hidden_size_per_layer_input": 10,
    "vocab_size_per_layer_input": 61,
    "num_kv_shared_layers": 3,
}

CASES: dict[str, Case] = {
    "gemma4": Case("Gemma4TextConfig", {**GEMMA4_SIZES, "use_double_wide_mlp": True, "final_logit_softcapping": 4.0}),
    "gemma4 older config": Case(
        "Gemma4TextConfig", GEMMA4_SIZES, {"global_head_dim": 12, "per_layer_config": ..., "rope_parameters": ...}
    ),
    "gemma4 keys as values, no sharing, no layer embeddings": Case(
        "Gemma4TextConfig",
        {
            **GEMMA4_SIZES,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 2,
            "num_kv_shared_layers": 0,
            "hidden_size_per_layer_input": 0,
            "attention_bias": True,
        },
    ),
    "gemma4 rotary stated": Case(
        "Gemma4TextConfig",
        {
            **GEMMA4_SIZES,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                "full_attention": {
                    "rope_type": "proportional",
                    "rope_theta": 5000.0,
                    "partial_rotary_factor": 0.5,
                    "factor": 4.0,
                },
            },
        },
    ),
}

UNTIED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

SEQ2SEQ_CASES: dict[str, Case] = {
    "t5": Case("T5Config", T5_SIZES),
    "t5 v1.1": Case("T5Config", {**T5_SIZES, **UNTIED}, {"tie_word_embeddings": False, "scale_decoder_outputs": ...}),
    "t5 v1.1, newer config": Case("T5Config", {**T5_SIZES, **UNTIED}),
    "t5 gated silu, tied": Case("T5Config", {**T5_SIZES, "feed_forward_proj": "gated-silu"}),
    "t5 one stack's worth of layers stated": Case(
        "T5Config", {**T5_SIZES, "num_decoder_layers": 3}, {"num_decoder_layers": ..., "scale_decoder_outputs": ...}
    ),
    "mt5": Case("MT5Config", T5_SIZES),
    "umt5": Case("UMT5Config", T5_SIZES),
    "bart": Case("BartConfig", BART_SIZES),
    "bart scaled, relu": Case("BartConfig", {**BART_SIZES, "scale_embedding": True, "activation_function": "relu"}),
    "marian": Case("MarianConfig", MARIAN_SIZES),
    "marian, two vocabularies": Case(
        "MarianConfig", {**MARIAN_SIZES, "decoder_vocab_size": 47, "share_encoder_decoder_embeddings": False}
    ),
}


def hf_seq2seq(case: Case, seed: int = 0, auto_class: str = "AutoModelForSeq2SeqLM") -> Any:
    """The Hugging Face model in float32 and evaluation mode, every parameter random, its head untied where the case says so."""
    import transformers

    config = getattr(transformers, case.config_class)(**case.options)
    config.bos_token_id = config.eos_token_id = config.forced_eos_token_id = None
    config.pad_token_id = 46
    make = getattr(transformers, auto_class)
    model = (make.from_config if auto_class.startswith("Auto") else make._from_config)(config, attn_implementation="eager")
    if case.options.get("tie_word_embeddings") is False and hasattr(model, "lm_head"):
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    generator = torch.Generator().manual_seed(seed)
    sinusoids = {name: value.clone() for name, value in model.named_parameters() if not value.requires_grad}
    randomise(model, generator)
    with torch.no_grad():
        for name, value in sinusoids.items():
            model.get_parameter(name).copy_(value)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.3, generator=generator)
    return model.eval()
