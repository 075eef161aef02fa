"""Tiny random Hugging Face encoders, with and without their head, and what they compute for one batch.

Sequences are longer than windows and blocks. Tokens that a mask hides are padding tokens, which RoBERTa's positions go by.
"""

from __future__ import annotations

from typing import Any

import torch

from tests.oracles.hf_models import Case, randomise

SIZES = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": None,
    "eos_token_id": None,
}
DISTIL_SIZES = {"vocab_size": 61, "dim": 24, "hidden_dim": 28, "n_layers": 3, "n_heads": 3, "max_position_embeddings": 64}
DEBERTA_SIZES = {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
V3_SIZES = {
    **DEBERTA_SIZES,
    "position_biased_input": False,
    "position_buckets": 4,
    "max_relative_positions": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}
BIG_BIRD_SIZES = {**SIZES, "block_size": 2, "num_random_blocks": 1, "sep_token_id": 2}
MODERN_SIZES = {**SIZES, "sep_token_id": None, "cls_token_id": None, "local_attention": 6}

CASES: dict[str, Case] = {
    "bert": Case("BertConfig", SIZES),
    "bert relu, three token types": Case("BertConfig", {**SIZES, "hidden_act": "relu", "type_vocab_size": 3}),
    "bert untied": Case("BertConfig", {**SIZES, "tie_word_embeddings": False}),
    "bert older config": Case("BertConfig", {**SIZES, "layer_norm_eps": 1e-3}, {"position_embedding_type": "absolute"}),
    "roberta": Case("RobertaConfig", SIZES),
    "roberta, padding id 3": Case("RobertaConfig", {**SIZES, "pad_token_id": 3, "hidden_act": "relu", "type_vocab_size": 1}),
    "xlm-roberta": Case("XLMRobertaConfig", SIZES),
    "camembert": Case("CamembertConfig", {**SIZES, "type_vocab_size": 1}),
    "distilbert": Case("DistilBertConfig", DISTIL_SIZES),
    "distilbert relu, sinusoidal": Case("DistilBertConfig", {**DISTIL_SIZES, "sinusoidal_pos_embds": True, "activation": "relu"}),
    "deberta": Case("DebertaConfig", {**DEBERTA_SIZES, "max_relative_positions": 10}),
    "deberta c2p, token types, no absolute positions": Case(
        "DebertaConfig",
        {**DEBERTA_SIZES, "pos_att_type": ["c2p"], "type_vocab_size": 2, "position_biased_input": False},
    ),
    "deberta p2c": Case("DebertaConfig", {**DEBERTA_SIZES, "pos_att_type": ["p2c"]}),
    "deberta, later head": Case("DebertaConfig", {**DEBERTA_SIZES, "legacy": False}),
    "deberta talking heads": Case("DebertaConfig", {**DEBERTA_SIZES, "talking_head": True}),
    "deberta without relative positions": Case("DebertaConfig", {**SIZES, "pos_att_type": ["c2p"]}),
    "deberta-v3": Case("DebertaV2Config", V3_SIZES),
    "deberta-v3, later head": Case("DebertaV2Config", {**V3_SIZES, "legacy": False}),
    "deberta-v2, own position weights, absolute positions": Case(
        "DebertaV2Config",
        {**DEBERTA_SIZES, "position_buckets": 6, "share_att_key": False, "norm_rel_ebd": "none", "type_vocab_size": 2},
    ),
    "deberta-v2 without buckets, p2c": Case(
        "DebertaV2Config", {**DEBERTA_SIZES, "pos_att_type": ["p2c"], "max_relative_positions": 9, "share_att_key": True}
    ),
    "deberta-v2 without relative positions": Case("DebertaV2Config", SIZES),
    "modernbert": Case("ModernBertConfig", MODERN_SIZES),
    "modernbert biases, relu": Case(
        "ModernBertConfig",
        {
            **MODERN_SIZES,
            "attention_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "classifier_bias": True,
            "decoder_bias": False,
            "classifier_activation": "relu",
            "hidden_activation": "silu",
        },
    ),
    "modernbert older config": Case(
        "ModernBertConfig",
        {
            **MODERN_SIZES,
            "num_hidden_layers": 4,
            "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
        {
            "layer_types": ...,
            "rope_parameters": ...,
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 500.0,
            "local_rope_theta": 50.0,
        },
    ),
    "longformer": Case("LongformerConfig", {**SIZES, "attention_window": [4, 8, 4]}),
    "longformer, one window": Case("LongformerConfig", {**SIZES, "attention_window": 6, "type_vocab_size": 1}),
    "big_bird": Case("BigBirdConfig", BIG_BIRD_SIZES),
    "big_bird two random blocks, no bias, scaled": Case(
        "BigBirdConfig", {**BIG_BIRD_SIZES, "num_random_blocks": 2, "use_bias": False, "rescale_embeddings": True}
    ),
    "big_bird full": Case("BigBirdConfig", {**BIG_BIRD_SIZES, "attention_type": "original_full"}),
}

OWN_POSITIONS = ("RobertaConfig", "XLMRobertaConfig", "CamembertConfig", "LongformerConfig")
"""Configs whose models leave padding out of the count by themselves."""


def hf_encoder(case: Case, head: bool, seed: int = 0) -> Any:
    """The Hugging Face model, in float32 and evaluation mode: for masked tokens where `head`, else the bare encoder."""
    import transformers

    config = getattr(transformers, case.config_class)(**case.options)
    kind = transformers.AutoModelForMaskedLM if head else transformers.AutoModel
    model = kind.from_config(config, attn_implementation="eager")
    randomise(model, torch.Generator().manual_seed(seed))
    return model.eval()


def hf_output(model: Any, tokens: torch.Tensor, mask: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Logits, or last hidden states, of tokens [batch, pos] of which `mask` is 0 at padding."""
    config = type(model.config).__name__
    tokens = torch.where(mask.bool(), tokens, model.config.pad_token_id)
    with torch.no_grad():
        if config == "BigBirdConfig":
            return _row_by_row(model, tokens, mask, inputs)
        if config not in OWN_POSITIONS:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        output = model(input_ids=tokens, attention_mask=mask, **inputs)
    return output[0]


def _row_by_row(model: Any, tokens: torch.Tensor, mask: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """BigBird's blocks move with padding, so each row is run alone; zeros at padding."""
    out = None
    for row, real in enumerate(mask.bool()):
        kept = {name: value[row : row + 1, real] for name, value in inputs.items()}
        # A short sequence switches the model to full attention for good.
        if model.config.attention_type == "block_sparse":
            getattr(model, "bert", model).set_attention_type("block_sparse")
        states = model(input_ids=tokens[row : row + 1, real], **kept)[0][0]
        out = states.new_zeros(*tokens.shape, states.shape[-1]) if out is None else out
        out[row, real] = states
    return out
