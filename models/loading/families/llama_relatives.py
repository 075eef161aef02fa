"""Llama with one thing changed: SmolLM3 (2025; every fourth layer has no positions), Granite 3 (2024; multipliers of embeddings,
scores, what layers write, and logits), Ministral 3 (2025; queries that grow with their position)."""

from __future__ import annotations

from typing import Any

from ...config import TemperatureConfig
from .family import Family, HFConfig
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rotary import shared_parameters
from .rules import listed_layer_types

NO_POSITIONS = {
    "nope": {"positions": "none", "mask": "full"},
    "nope_sliding": {"positions": "none", "mask": "sliding"},
}
"""Types of layers without positions: what differs in them."""


def _rotates(hf: HFConfig) -> list[bool]:
    """Whether each layer has positions: 1 in `no_rope_layers` says that it does."""
    listed = hf.get("no_rope_layers")
    if listed is None:
        listed = [(layer + 1) % hf["no_rope_layer_interval"] for layer in range(hf["num_hidden_layers"])]
    return [bool(each) for each in listed[: hf["num_hidden_layers"]]]


def _smollm3_layer_types(hf: HFConfig) -> tuple[str, ...]:
    """Where windows are in use and `layer_types` does not place them, they are on the layers without positions."""
    has_windows = hf["use_sliding_window"] and hf["sliding_window"] is not None
    rotates = _rotates(hf)
    masks = listed_layer_types(hf) or tuple("sliding" if has_windows and not each else "full" for each in rotates)
    names = {"full": "nope", "sliding": "nope_sliding"}
    return tuple(mask if each else names[mask] for mask, each in zip(masks, rotates, strict=True))


def _smollm3_by_type(hf: HFConfig) -> dict[str, dict[str, str]]:
    used = set(_smollm3_layer_types(hf))
    return {kind: changes for kind, changes in NO_POSITIONS.items() if kind in used}


def _ministral3_temperature(hf: HFConfig) -> TemperatureConfig | None:
    parameters = shared_parameters(hf)
    scale = parameters.get("llama_4_scaling_beta")
    if not scale:
        return None
    return TemperatureConfig(float(scale), float(parameters["original_max_position_embeddings"]), offset=0.0)


SMOLLM3 = Family(
    name="smollm3",
    model_types=("smollm3",),
    defaults={
        **DEFAULTS,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "rope_theta": 2_000_000.0,
        "no_rope_layer_interval": 4,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "bos_token_id": 128_000,
        "eos_token_id": 128_001,
    },
    constants=CONSTANTS,
    config={
        **CONFIG,
        "mlp_bias": "mlp_bias",
        "window": "sliding_window",
        "layer_types": _smollm3_layer_types,
        "by_type": _smollm3_by_type,
    },
    weights=WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)

GRANITE = Family(
    name="granite",
    model_types=("granite",),
    defaults={
        **DEFAULTS,
        "embedding_multiplier": 1.0,
        "attention_multiplier": 1.0,
        "residual_multiplier": 1.0,
        "logits_scaling": 1.0,
    },
    constants=CONSTANTS,
    config={
        **CONFIG,
        "mlp_bias": "mlp_bias",
        "embed_scale": "embedding_multiplier",
        "attn_scale": "attention_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": lambda hf: 1 / hf["logits_scaling"],
    },
    weights=WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)

_MINISTRAL3_ROTARY: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16_384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}

MINISTRAL3 = Family(
    name="ministral3",
    model_types=("ministral3",),
    defaults={
        **DEFAULTS,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-5,
        "rope_parameters": _MINISTRAL3_ROTARY,
        "sliding_window": None,
    },
    constants={**CONSTANTS, "qkv_bias": False, "out_bias": False},
    config={
        **{ours: rule for ours, rule in CONFIG.items() if ours not in ("qkv_bias", "out_bias")},
        "temperature": _ministral3_temperature,
        "window": "sliding_window",
    },
    weights=WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)
