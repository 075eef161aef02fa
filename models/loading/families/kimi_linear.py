"""Kimi Linear (arXiv 2510.26692): three layers of Kimi delta attention to each of latent attention, no positions, experts."""

from __future__ import annotations

from typing import Any

from ...config import ExpertsConfig, LatentConfig, LinearConfig
from .experts import LAYER, dense_types, expert_weights, shared_weights, typed_layers
from .family import Family, HFConfig
from .hybrid import DELTA_WEIGHTS, hybrid_layer_types, mixer_weights
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rules import activation

MIXER_FIELDS = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""Fields of `linear_attn_config`, where older files keep them -> their names in newer ones."""


def _mixer(hf: HFConfig, field: str) -> int:
    inner = hf["linear_attn_config"] or {}
    return inner.get(next(old for old, new in MIXER_FIELDS.items() if new == field)) or hf[field]


def _kinds(hf: HFConfig) -> tuple[str, ...]:
    """Older files count layers from 1, in a list for each kind."""
    full = (hf["linear_attn_config"] or {}).get("full_attn_layers")
    return hybrid_layer_types(hf, lambda layer: layer + 1 in full if full is not None else bool(layer) and layer % 4 == 0)


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    listed = hf["mlp_layer_types"]
    has_experts = [
        layer >= hf["first_k_dense_replace"] if listed is None else listed[layer] == "sparse"
        for layer in range(hf["num_hidden_layers"])
    ]
    return typed_layers(_kinds(hf), has_experts)


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    heads, d_head = _mixer(hf, "linear_num_heads"), _mixer(hf, "linear_head_dim")
    linear = {
        "mixer": "kimi_delta",
        "mask": "full",
        "latent": None,
        "qkv_bias": False,
        "out_bias": False,
        "n_heads": heads,
        "n_kv_heads": heads,
        "d_head": d_head,
        "d_value": d_head,
        "out_steps": ("gated_norm",),
        "linear": LinearConfig(
            conv_width=_mixer(hf, "linear_conv_kernel_dim"),
            qkv_activation=activation(hf),
            decay_rank=d_head,
            gate_rank=d_head,
            gate_activation="sigmoid",
        ),
    }
    types = _layer_types(hf)
    changes: dict[str, dict[str, Any]] = {kind: {} for kind in types if kind.endswith("_dense")}
    changes |= {kind: linear for kind in types if kind[:6] == "linear"}
    dense = dense_types(types)
    return {kind: {**dense.get(kind, {}), **each} for kind, each in changes.items()}


def _latent(hf: HFConfig) -> LatentConfig:
    return LatentConfig(kv_rank=hf["kv_lora_rank"], q_rank=hf["q_lora_rank"] or 0, d_shared=hf["qk_rope_head_dim"])


def _experts(hf: HFConfig) -> ExpertsConfig:
    return ExpertsConfig(
        n_experts=hf["num_experts"],
        n_active=hf["num_experts_per_token"],
        d_expert=hf["moe_intermediate_size"],
        d_shared=hf["moe_intermediate_size"] * (hf["num_shared_experts"] or 0),
        router="sigmoid",
        correction=True,
        normalise=hf["moe_renormalize"],
        scale=float(hf["routed_scaling_factor"]),
        n_groups=hf["num_expert_group"],
        n_active_groups=hf["topk_group"],
        group_top=min(2, hf["num_experts"] // hf["num_expert_group"]),
    )


DELTA: dict[str, str | tuple[str, str]] = {
    **DELTA_WEIGHTS,
    "decay.down.weight": "f_a_proj.weight",
    "decay.up.weight": "f_b_proj.weight",
    "decay_bias": "dt_bias",
    "log_rate": ("A_log", "flat"),
    "out_steps.gated_norm.gate.down.weight": "g_a_proj.weight",
    "out_steps.gated_norm.gate.up.weight": "g_b_proj.weight",
}

KIMI_LINEAR = Family(
    name="kimi_linear",
    model_types=("kimi_linear",),
    defaults={
        **{field: value for field, value in DEFAULTS.items() if field != "max_position_embeddings"},
        "model_max_length": 1 << 20,
        "rms_norm_eps": 1e-5,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_experts": 256,
        "num_experts_per_token": 8,
        "num_shared_experts": 1,
        "moe_intermediate_size": 1024,
        "moe_renormalize": True,
        "routed_scaling_factor": 2.446,
        "num_expert_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "mlp_layer_types": None,
        "layer_types": None,
        "linear_attn_config": None,
        "linear_head_dim": 128,
        "linear_num_heads": 32,
        "linear_conv_kernel_dim": 4,
        "bos_token_id": 163_584,
        "eos_token_id": 163_586,
    },
    constants={**CONSTANTS, "positions": "none", "mixer": "latent"},
    config={
        **{ours: rule for ours, rule in CONFIG.items() if ours != "rotary"},
        "n_ctx": "model_max_length",
        "n_kv_heads": "num_attention_heads",
        "d_head": lambda hf: hf["qk_nope_head_dim"] + hf["qk_rope_head_dim"],
        "d_value": "v_head_dim",
        "latent": _latent,
        "layer_types": _layer_types,
        "by_type": _by_type,
        "experts": _experts,
    },
    weights={
        **{ours: theirs for ours, theirs in WEIGHTS.items() if ".attn." not in ours or ".attn.o." in ours},
        **{
            f"blocks.{{l}}.mlp.{part}.weight": f"{LAYER}mlp.{part}_proj.weight|{LAYER}block_sparse_moe.{part}_proj.weight"
            for part in ("gate", "up", "down")
        },
        "blocks.{l}.attn.q_down.weight": f"{LAYER}self_attn.q_a_proj.weight",
        "blocks.{l}.attn.q_down.bias": f"{LAYER}self_attn.q_a_proj.bias",
        "blocks.{l}.attn.q_latent_norm.weight": f"{LAYER}self_attn.q_a_layernorm.weight",
        "blocks.{l}.attn.q_up.weight": f"{LAYER}self_attn.q_b_proj.weight|{LAYER}self_attn.q_proj.weight",
        "blocks.{l}.attn.kv_down.weight": f"{LAYER}self_attn.kv_a_proj_with_mqa.weight",
        "blocks.{l}.attn.kv_down.bias": f"{LAYER}self_attn.kv_a_proj_with_mqa.bias",
        "blocks.{l}.attn.kv_latent_norm.weight": f"{LAYER}self_attn.kv_a_layernorm.weight",
        "blocks.{l}.attn.kv_up.weight": f"{LAYER}self_attn.kv_b_proj.weight",
        **expert_weights("block_sparse_moe", gate="w1", up="w3", down="w2"),
        **shared_weights("block_sparse_moe.shared_experts"),
        "blocks.{l}.mlp.router.correction": f"{LAYER}block_sparse_moe.gate.e_score_correction_bias",
        **mixer_weights("kimi_delta", "self_attn", DELTA),
    },
    prefixes=PREFIXES,
    refused={"moe_layer_freq": (1,)},
    ignored=IGNORED,
)
