"""Qwen3-Next: three gated delta layers to each layer of gated attention, and a mixture of experts in most layers."""

from __future__ import annotations

from typing import Any

from ...config import LinearConfig
from ..fill import Weight
from .experts import (
    LAYER,
    MOE_DEFAULTS,
    dense_types,
    expert_weights,
    qwen_experts,
    qwen_has_experts,
    shared_weights,
    typed_layers,
)
from .family import Family, HFConfig
from .hybrid import hybrid_layer_types, mixer_weights
from .llama import CONFIG, CONSTANTS, DEFAULTS, HEAD_NORMS, IGNORED, PREFIXES, WEIGHTS
from .rotary import partial_rotary
from .rules import activation


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    kinds = hybrid_layer_types(hf, lambda layer: (layer + 1) % hf["full_attention_interval"] == 0)
    return typed_layers(kinds, qwen_has_experts(hf))


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    linear = {
        "mixer": "gated_delta",
        "mask": "full",
        "positions": "none",
        "qk_norm": "none",
        "qkv_bias": False,
        "out_bias": False,
        "n_heads": hf["linear_num_value_heads"],
        "n_kv_heads": hf["linear_num_value_heads"],
        "d_head": hf["linear_key_head_dim"],
        "d_value": hf["linear_value_head_dim"],
        "out_steps": ("gated_norm",),
        "linear": LinearConfig(
            n_key_heads=hf["linear_num_key_heads"],
            conv_width=hf["linear_conv_kernel_dim"],
            qkv_activation=activation(hf),
        ),
    }
    dense = dense_types(_layer_types(hf))
    kinds = {kind: linear if kind.startswith("linear") else {} for kind in _layer_types(hf)}
    return {kind: {**dense.get(kind, {}), **changes} for kind, changes in kinds.items() if changes or kind in dense}


DELTA: dict[str, str | tuple[str, str]] = {
    **{f"{part}.weight": ("in_proj_qkvz.weight", f"qkvz_{part}") for part in "qkv"},
    **{f"conv_{part}.weight": ("conv1d.weight", f"qkv_{part}") for part in "qkv"},
    "out_steps.gated_norm.gate.weight": ("in_proj_qkvz.weight", "qkvz_z"),
    "out_steps.gated_norm.weight": "norm.weight",
    "beta.weight": ("in_proj_ba.weight", "ba_b"),
    "decay.weight": ("in_proj_ba.weight", "ba_a"),
    "decay_bias": "dt_bias",
    "log_rate": "A_log",
    "o.weight": "out_proj.weight",
}

GATE = {
    f"blocks.{{l}}.attn.{ours}.{kind}": Weight(f"{LAYER}self_attn.q_proj.{kind}", f"{half}_half_of_heads")
    for ours, half in (("q", "first"), ("out_steps.gate.proj", "second"))
    for kind in ("weight", "bias")
}

QWEN3_NEXT = Family(
    name="qwen3_next",
    model_types=("qwen3_next",),
    defaults={
        **DEFAULTS,
        **MOE_DEFAULTS,
        "norm_topk_prob": True,
        "head_dim": 256,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "partial_rotary_factor": 0.25,
        "full_attention_interval": 4,
        "layer_types": None,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    constants={**CONSTANTS, "norm": "rms_norm_offset", "qk_norm": "per_head", "out_steps": ("gate",)},
    config={
        **CONFIG,
        "rotary": partial_rotary,
        "layer_types": _layer_types,
        "by_type": _by_type,
        "experts": qwen_experts,
    },
    weights={
        **WEIGHTS,
        **HEAD_NORMS,
        **GATE,
        **expert_weights("mlp"),
        **shared_weights("mlp.shared_expert"),
        "blocks.{l}.mlp.shared_gate.weight": f"{LAYER}mlp.shared_expert_gate.weight",
        **mixer_weights("gated_delta", "linear_attn", DELTA),
    },
    prefixes=PREFIXES,
    ignored=(*IGNORED, r"^mtp\."),
)
