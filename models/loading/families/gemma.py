"""Gemma 1 (arXiv 2403.08295), 2 (2408.00118) and 3 (2503.19786).

RMSNorm with gain 1 + w and scaled embeddings throughout; 2 and 3 have sandwich blocks and alternate windows, 2 caps scores and
logits, 3 normalises queries and keys and has its own rotary base in sliding layers.
"""

from __future__ import annotations

from ...config import RotaryConfig
from .family import Family, HFConfig, Rule
from .llama import CONFIG, HEAD_NORMS, IGNORED, PREFIXES, WEIGHTS
from .rotary import rotary_from, shared_parameters
from .rules import activation_named, every_nth_full, listed_layer_types

CONSTANTS = {"norm": "rms_norm_offset", "positions": "rotary", "gated_mlp": True}

DEFAULTS = {
    "num_key_value_heads": None,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "bos_token_id": 2,
    "eos_token_id": 1,
}


def _gemma1_activation(hf: HFConfig) -> str:
    """The first files say "gelu" and mean its tanh form."""
    name = hf.get("hidden_activation") or hf.get("hidden_act") or "gelu_pytorch_tanh"
    return "gelu_tanh" if name == "gelu" else activation_named(name)


GEMMA_CONFIG: dict[str, Rule] = {**CONFIG, "embed_scale": lambda hf: hf["hidden_size"] ** 0.5}

CAPPED_CONFIG: dict[str, Rule] = {
    **GEMMA_CONFIG,
    "activation": lambda hf: activation_named(hf["hidden_activation"]),
    "attn_scale": lambda hf: hf["query_pre_attn_scalar"] ** -0.5,
    "attn_softcap": "attn_logit_softcapping",
    "logit_softcap": "final_logit_softcapping",
    "window": "sliding_window",
}

SANDWICH_WEIGHTS = {
    **WEIGHTS,
    "blocks.{l}.ln1_post.weight": "{base}layers.{l}.post_attention_layernorm.weight",
    "blocks.{l}.ln2.weight": "{base}layers.{l}.pre_feedforward_layernorm.weight",
    "blocks.{l}.ln2_post.weight": "{base}layers.{l}.post_feedforward_layernorm.weight",
}

REFUSED = {"use_bidirectional_attention": (False, None)}


def _gemma2_layer_types(hf: HFConfig) -> tuple[str, ...]:
    return listed_layer_types(hf) or every_nth_full(hf, 2)


def _gemma3_layer_types(hf: HFConfig) -> tuple[str, ...]:
    pattern = hf.get("sliding_window_pattern") or hf.get("_sliding_window_pattern") or 6
    return listed_layer_types(hf) or every_nth_full(hf, pattern)


def _gemma3_rotary(hf: HFConfig) -> RotaryConfig:
    """Full layers: the larger base, and the scaling if there is one."""
    parameters = shared_parameters(hf)
    nested = any(isinstance(value, dict) for value in parameters.values())
    return rotary_from(hf, parameters.get("full_attention") or {} if nested else parameters, float(hf["rope_theta"]))


def _gemma3_by_type(hf: HFConfig) -> dict[str, dict[str, RotaryConfig]]:
    """Sliding layers: the smaller base; a scaling only where the file gives one for them by name."""
    if "sliding" not in _gemma3_layer_types(hf):
        return {}
    parameters = shared_parameters(hf).get("sliding_attention") or {}
    return {"sliding": {"rotary": rotary_from(hf, parameters, float(hf["rope_local_base_freq"]))}}


GEMMA1 = Family(
    name="gemma",
    model_types=("gemma",),
    defaults=DEFAULTS,
    constants={**CONSTANTS, "block": "pre"},
    config={**GEMMA_CONFIG, "activation": _gemma1_activation},
    weights=WEIGHTS,
    prefixes=PREFIXES,
    refused=REFUSED,
    ignored=IGNORED,
)

GEMMA2 = Family(
    name="gemma2",
    model_types=("gemma2",),
    defaults={
        **DEFAULTS,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    constants={**CONSTANTS, "block": "sandwich"},
    config={**CAPPED_CONFIG, "layer_types": _gemma2_layer_types},
    weights=SANDWICH_WEIGHTS,
    prefixes=PREFIXES,
    refused=REFUSED,
    ignored=IGNORED,
)

GEMMA3 = Family(
    name="gemma3",
    model_types=("gemma3_text", "gemma3"),
    defaults={
        **DEFAULTS,
        # What the published multimodal files leave out of their text part.
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    constants={**CONSTANTS, "block": "sandwich", "qk_norm": "per_head"},
    config={
        **CAPPED_CONFIG,
        "layer_types": _gemma3_layer_types,
        "rotary": _gemma3_rotary,
        "by_type": _gemma3_by_type,
    },
    weights={**SANDWICH_WEIGHTS, **HEAD_NORMS},
    prefixes=(*PREFIXES, ("language_model.model.", "language_model."), ("model.language_model.", "")),
    # The reference implementation ignores a cap on scores, and no published model has one.
    refused={**REFUSED, "attn_logit_softcapping": (None,)},
    ignored=(*IGNORED, r"^(model\.)?(vision_tower|multi_modal_projector)\."),
    nested="text_config",
)
