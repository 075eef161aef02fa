"""OLMo 2 (arXiv 2501.00656) and 3 (2025): norms on what attention and MLP write, none on what they read, and on all of q and k.

OLMo 3 has windows, and stretches its rotary positions in full layers only.
"""

from __future__ import annotations

from typing import Any

from ...config import RotaryConfig
from .family import Family, HFConfig
from .llama import CONFIG, CONSTANTS, DEFAULTS, HEAD_NORMS, IGNORED, PREFIXES, WEIGHTS
from .rotary import rotary_from, shared_parameters
from .rules import every_nth_full, listed_layer_types

OLMO_CONSTANTS = {**CONSTANTS, "block": "output_norm", "qk_norm": "full_width"}
OLMO_DEFAULTS = {**DEFAULTS, "rms_norm_eps": 1e-5, "bos_token_id": None, "eos_token_id": 50_279}

OLMO_WEIGHTS = {
    **{ours: theirs for ours, theirs in {**WEIGHTS, **HEAD_NORMS}.items() if ".ln1." not in ours and ".ln2." not in ours},
    "blocks.{l}.ln1_post.weight": "{base}layers.{l}.post_attention_layernorm.weight",
    "blocks.{l}.ln2_post.weight": "{base}layers.{l}.post_feedforward_layernorm.weight",
}


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    return listed_layer_types(hf) or every_nth_full(hf, 4)


def _rotary_of(hf: HFConfig, layers: str) -> RotaryConfig:
    """Files name the parameters of both types of layer, or, in the older form, a scaling that is for full layers alone."""
    parameters = shared_parameters(hf)
    if any(isinstance(value, dict) for value in parameters.values()):
        parameters = parameters.get(layers) or {}
    elif layers == "sliding_attention":
        parameters = {}
    return rotary_from(hf, parameters, float(hf["rope_theta"]))


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    return {"sliding": {"rotary": _rotary_of(hf, "sliding_attention")}} if "sliding" in _layer_types(hf) else {}


OLMO2 = Family(
    name="olmo2",
    model_types=("olmo2",),
    defaults=OLMO_DEFAULTS,
    constants=OLMO_CONSTANTS,
    config=CONFIG,
    weights=OLMO_WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)

OLMO3 = Family(
    name="olmo3",
    model_types=("olmo3",),
    defaults={**OLMO_DEFAULTS, "rope_theta": 500_000.0, "sliding_window": 4096},
    constants=OLMO_CONSTANTS,
    config={
        **CONFIG,
        "window": "sliding_window",
        "layer_types": _layer_types,
        "rotary": lambda hf: _rotary_of(hf, "full_attention"),
        "by_type": _by_type,
    },
    weights=OLMO_WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)
