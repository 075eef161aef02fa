"""Mixtures of experts: Mixtral (Jiang et al. 2024, arXiv 2401.04088), Qwen2-MoE and Qwen3-MoE (arXiv 2505.09388).

Llama's layers with experts in place of the MLP, in all layers or in some. The maps of experts serve other families too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...config import ExpertsConfig
from .family import Family, HFConfig
from .llama import CONFIG, CONSTANTS, DEFAULTS, HEAD_NORMS, IGNORED, PREFIXES, QWEN_DEFAULTS, WEIGHTS
from .rules import listed_layer_types

LAYER = "{base}layers.{l}."
WITHOUT_MLP = {ours: theirs for ours, theirs in WEIGHTS.items() if ".mlp." not in ours}


def expert_weights(block: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> dict[str, str]:
    """The map of a mixture whose tensors lie one by one under `block`: the router's `gate`, and three for each expert."""
    return {
        "blocks.{l}.mlp.router.weight": f"{LAYER}{block}.gate.weight",
        "blocks.{l}.mlp.experts.gate.weight": f"{LAYER}{block}.experts.{{e}}.{gate}.weight",
        "blocks.{l}.mlp.experts.up.weight": f"{LAYER}{block}.experts.{{e}}.{up}.weight",
        "blocks.{l}.mlp.experts.down.weight": f"{LAYER}{block}.experts.{{e}}.{down}.weight",
    }


def shared_weights(block: str) -> dict[str, str]:
    """The map of the shared expert, a gated MLP under `block`."""
    return {f"blocks.{{l}}.mlp.shared.{part}.weight": f"{LAYER}{block}.{part}_proj.weight" for part in ("gate", "up", "down")}


def typed_layers(kinds: Sequence[str], has_experts: Sequence[bool]) -> tuple[str, ...]:
    """Layer types that tell apart, for each kind of attention, the layers with a plain MLP: "full" and "full_dense"."""
    return tuple(kind if experts else f"{kind}_dense" for kind, experts in zip(kinds, has_experts, strict=True))


def dense_types(layer_types: Sequence[str], **changes: Any) -> dict[str, dict[str, Any]]:
    """`by_type` of the layers that `typed_layers` called dense: the mask of their kind, no experts, and further changes."""
    dense = {kind for kind in layer_types if kind.endswith("_dense")}
    return {kind: {"mask": kind.removesuffix("_dense"), "experts": None, **changes} for kind in sorted(dense)}


def _mixtral_experts(hf: HFConfig) -> ExpertsConfig:
    return ExpertsConfig(
        n_experts=hf["num_local_experts"],
        n_active=hf["num_experts_per_tok"],
        d_expert=hf["intermediate_size"],
        normalise=True,
    )


def n_experts(hf: HFConfig) -> int:
    """`num_experts`, which newer files call `num_local_experts`."""
    return hf["num_local_experts"] if "num_local_experts" in hf else hf["num_experts"]


def qwen_experts(hf: HFConfig) -> ExpertsConfig:
    """Experts of Qwen2-MoE, Qwen3-MoE and Qwen3-Next."""
    d_shared = hf.get("shared_expert_intermediate_size", 0)
    return ExpertsConfig(
        n_experts=n_experts(hf),
        n_active=hf["num_experts_per_tok"],
        d_expert=hf["moe_intermediate_size"],
        normalise=hf["norm_topk_prob"],
        d_shared=d_shared,
        shared_gate=d_shared > 0,
    )


def qwen_has_experts(hf: HFConfig) -> list[bool]:
    """Every `decoder_sparse_step`-th layer has experts, but for those that `mlp_only_layers` lists."""
    step, dense = hf["decoder_sparse_step"], hf["mlp_only_layers"] or ()
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(hf["num_hidden_layers"])]


def _window(hf: HFConfig) -> int | None:
    return hf["sliding_window"] if hf["use_sliding_window"] else None


def _qwen3_layer_types(hf: HFConfig) -> tuple[str, ...]:
    kind = "full" if _window(hf) is None else "sliding"
    return typed_layers([kind] * hf["num_hidden_layers"], qwen_has_experts(hf))


def _qwen2_layer_types(hf: HFConfig) -> tuple[str, ...]:
    """With a window, every other of the first `max_window_layers` layers slides, unless `layer_types` says otherwise."""
    layers = range(hf["num_hidden_layers"])
    sliding = [_window(hf) is not None and layer % 2 == 0 and layer < hf["max_window_layers"] for layer in layers]
    kinds = listed_layer_types(hf) or ["sliding" if each else "full" for each in sliding]
    return typed_layers(kinds, qwen_has_experts(hf))


MOE_DEFAULTS = {"decoder_sparse_step": 1, "mlp_only_layers": None, "norm_topk_prob": False}

MIXTRAL = Family(
    name="mixtral",
    model_types=("mixtral",),
    defaults={
        **DEFAULTS,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    constants=CONSTANTS,
    config={**CONFIG, "window": "sliding_window", "experts": _mixtral_experts},
    weights={**WITHOUT_MLP, **expert_weights("block_sparse_moe", gate="w1", up="w3", down="w2")},
    prefixes=PREFIXES,
    ignored=IGNORED,
)

QWEN2_MOE = Family(
    name="qwen2_moe",
    model_types=("qwen2_moe",),
    defaults={
        **QWEN_DEFAULTS,
        **MOE_DEFAULTS,
        "qkv_bias": True,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    constants={**CONSTANTS, "out_bias": False},
    config={
        **{ours: rule for ours, rule in CONFIG.items() if ours != "out_bias"},
        "qkv_bias": "qkv_bias",
        "window": _window,
        "layer_types": _qwen2_layer_types,
        "by_type": lambda hf: dense_types(_qwen2_layer_types(hf)),
        "experts": qwen_experts,
    },
    weights={
        **WEIGHTS,
        **expert_weights("mlp"),
        **shared_weights("mlp.shared_expert"),
        "blocks.{l}.mlp.shared_gate.weight": f"{LAYER}mlp.shared_expert_gate.weight",
    },
    prefixes=PREFIXES,
    ignored=IGNORED,
)

QWEN3_MOE = Family(
    name="qwen3_moe",
    model_types=("qwen3_moe",),
    defaults={
        **QWEN_DEFAULTS,
        **MOE_DEFAULTS,
        "head_dim": 128,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
    },
    constants={**CONSTANTS, "qk_norm": "per_head"},
    config={
        **CONFIG,
        "window": _window,
        "layer_types": _qwen3_layer_types,
        "by_type": lambda hf: dense_types(_qwen3_layer_types(hf)),
        "experts": qwen_experts,
    },
    weights={**WEIGHTS, **HEAD_NORMS, **expert_weights("mlp")},
    prefixes=PREFIXES,
    ignored=IGNORED,
)
