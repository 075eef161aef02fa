"""Cohere's Command R and R+ (2024), and Cohere 2 (Command R7B and A, 2024-25; arXiv 2504.00698).

One LayerNorm without bias feeds attention and MLP side by side; rotary pairs are interleaved; embeddings are tied and logits
scaled. Command R+ norms the queries and keys of each head with gains of their own. Cohere 2 has windows; its full layers have no
positions.
"""

from __future__ import annotations

import dataclasses

from ...config import RotaryConfig
from .family import Family, HFConfig, Rule
from .llama import CONFIG, DEFAULTS, HEAD_NORMS, IGNORED, PREFIXES, WEIGHTS
from .rotary import rotary
from .rules import every_nth_full, listed_layer_types

CONSTANTS = {"block": "parallel_shared", "norm": "layer_norm", "norm_bias": False, "positions": "rotary", "gated_mlp": True}

COHERE_DEFAULTS = {
    **{field: value for field, value in DEFAULTS.items() if field not in ("rms_norm_eps", "mlp_bias")},
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.0625,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "bos_token_id": 5,
    "eos_token_id": 255_001,
}

COHERE_WEIGHTS = {ours: theirs for ours, theirs in WEIGHTS.items() if ".ln2." not in ours}


def _interleaved(hf: HFConfig) -> RotaryConfig:
    return dataclasses.replace(rotary(hf), layout="interleaved")


def _logit_scale(hf: HFConfig) -> float:
    """null leaves logits as they are."""
    return 1.0 if hf["logit_scale"] is None else float(hf["logit_scale"])


COHERE_CONFIG: dict[str, Rule] = {**CONFIG, "norm_eps": "layer_norm_eps", "rotary": _interleaved, "logit_scale": _logit_scale}


def _cohere2_layer_types(hf: HFConfig) -> tuple[str, ...]:
    return listed_layer_types(hf) or every_nth_full(hf, hf.get("sliding_window_pattern") or 4)


def _full_without_positions(hf: HFConfig) -> dict[str, dict[str, str]]:
    return {"full": {"positions": "none"}} if "full" in _cohere2_layer_types(hf) else {}


COHERE = Family(
    name="cohere",
    model_types=("cohere",),
    defaults={**COHERE_DEFAULTS, "rope_theta": 500_000.0, "use_qk_norm": False},
    constants=CONSTANTS,
    config={**COHERE_CONFIG, "qk_norm": lambda hf: "own_per_head" if hf["use_qk_norm"] else "none"},
    weights={**COHERE_WEIGHTS, **HEAD_NORMS},
    prefixes=PREFIXES,
    ignored=IGNORED,
)

COHERE2 = Family(
    name="cohere2",
    model_types=("cohere2",),
    defaults={**COHERE_DEFAULTS, "sliding_window": 4096},
    constants=CONSTANTS,
    config={
        **COHERE_CONFIG,
        "window": "sliding_window",
        "layer_types": _cohere2_layer_types,
        "by_type": _full_without_positions,
    },
    weights=COHERE_WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)
