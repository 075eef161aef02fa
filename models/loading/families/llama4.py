"""Llama 4, its text part (Meta 2025): chunked attention with interleaved rotary positions and an L2 norm after them; every
fourth layer sees all keys, has no positions, and a temperature instead; sigmoid-routed experts in some or all layers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...config import ExpertsConfig, RotaryConfig, TemperatureConfig
from ..fill import Weight
from .experts import LAYER, shared_weights
from .family import Family, HFConfig
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rotary import rotary
from .rules import listed_layer_types

LAYER_TYPES = {"full_attention": "full", "chunked_attention": "chunked"}


def _rotary(hf: HFConfig) -> RotaryConfig:
    return dataclasses.replace(rotary(hf), layout="interleaved")


def _has_rotary(hf: HFConfig) -> list[bool]:
    """By layer; a 1 in `no_rope_layers` means that the layer has rotary positions."""
    interval = hf["no_rope_layer_interval"]
    stated = hf["no_rope_layers"] or [(layer + 1) % interval for layer in range(hf["num_hidden_layers"])]
    return [bool(each) for each in stated]


def _has_experts(hf: HFConfig) -> list[bool]:
    step, stated = hf["interleave_moe_layer_step"], hf["moe_layers"]
    layers = range(hf["num_hidden_layers"])
    return [(layer + 1) % step == 0 if stated is None else layer in stated for layer in layers]


def _layers(hf: HFConfig) -> list[tuple[str, dict[str, Any]]]:
    """The type of each layer, named by its mask, "nope" where it has no positions and "dense" where it has no experts."""
    with_rotary = _has_rotary(hf)
    chunked = ["chunked" if each and hf["attention_chunk_size"] is not None else "full" for each in with_rotary]
    masks = listed_layer_types(hf, LAYER_TYPES) or chunked
    tuned = TemperatureConfig(scale=float(hf["attn_scale"]), floor_scale=float(hf["floor_scale"]))
    nope = {"positions": "none", "qk_norm": "none", "temperature": tuned if hf["attn_temperature_tuning"] else None}
    layers = []
    for mask, rotates, experts in zip(masks, with_rotary, _has_experts(hf), strict=True):
        name = mask + ("" if rotates else "_nope") + ("" if experts else "_dense")
        layers.append((name, {"mask": mask, **({} if rotates else nope), **({} if experts else {"experts": None})}))
    return layers


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    return tuple(name for name, _ in _layers(hf))


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    return dict(_layers(hf))


def _experts(hf: HFConfig) -> ExpertsConfig:
    width = hf["intermediate_size"]
    return ExpertsConfig(
        n_experts=hf["num_local_experts"],
        n_active=hf["num_experts_per_tok"],
        d_expert=width,
        router="sigmoid",
        weighed="input",
        d_shared=width,
    )


def _qk_norm(hf: HFConfig) -> str:
    return "l2" if hf["use_qk_norm"] else "none"


_MLP = f"{LAYER}feed_forward."
_EXPERTS = f"{_MLP}experts."

LLAMA4 = Family(
    name="llama4",
    model_types=("llama4_text", "llama4"),
    defaults={
        **DEFAULTS,
        "vocab_size": 202_048,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 16_384,
        "moe_layers": None,
        "use_qk_norm": True,
        "no_rope_layers": None,
        "no_rope_layer_interval": 4,
        "attention_chunk_size": 8192,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "attn_scale": 0.1,
    },
    constants={**CONSTANTS, "qk_norm_place": "after"},
    config={
        **CONFIG,
        "d_mlp": "intermediate_size_mlp",
        "rotary": _rotary,
        "qk_norm": _qk_norm,
        "chunk": "attention_chunk_size",
        "layer_types": _layer_types,
        "by_type": _by_type,
        "experts": _experts,
    },
    weights={
        **{ours: theirs for ours, theirs in WEIGHTS.items() if ".mlp." not in ours},
        **{f"blocks.{{l}}.mlp.{part}.weight": f"{_MLP}{part}_proj.weight" for part in ("gate", "up", "down")},
        **shared_weights("feed_forward.shared_expert"),
        "blocks.{l}.mlp.router.weight": f"{_MLP}router.weight",
        "blocks.{l}.mlp.experts.gate.weight": Weight(f"{_EXPERTS}gate_up_proj", "experts_first"),
        "blocks.{l}.mlp.experts.up.weight": Weight(f"{_EXPERTS}gate_up_proj", "experts_last"),
        "blocks.{l}.mlp.experts.down.weight": Weight(f"{_EXPERTS}down_proj", "experts_transpose"),
    },
    prefixes=(*PREFIXES, ("language_model.model.", "language_model."), ("model.language_model.", "")),
    ignored=(*IGNORED, r"^(model\.)?(vision_model|multi_modal_projector)\."),
    nested="text_config",
)
