"""DeepSeek V2 (arXiv 2405.04434), V3 (2412.19437) and V3.2 (2512.02556), and GLM-5 (2602.15763): latent attention and experts.

V3.2 and GLM-5 attend to the keys that an indexer chooses; in GLM-5 some layers see what an earlier one chose.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...config import ExpertsConfig, LatentConfig, RotaryConfig, SparseConfig
from .experts import LAYER, expert_weights, shared_weights
from .family import Family, HFConfig, Rule
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rotary import kind_of, rotary_from, shared_parameters

LATENT_DEFAULTS = {
    **DEFAULTS,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 3,
    "mlp_layer_types": None,
}


def _d_head(hf: HFConfig) -> int:
    return hf["qk_nope_head_dim"] + hf["qk_rope_head_dim"]


def _latent(hf: HFConfig) -> LatentConfig:
    """The norms of latents keep their own epsilon, whatever the model's is."""
    return LatentConfig(kv_rank=hf["kv_lora_rank"], q_rank=hf["q_lora_rank"] or 0, d_shared=hf["qk_rope_head_dim"], norm_eps=1e-6)


def _attn_scale(hf: HFConfig) -> float:
    """1 / sqrt(d_head), times the square of what YaRN's `mscale_all_dim` makes of the factor."""
    parameters, scale = shared_parameters(hf), _d_head(hf) ** -0.5
    if kind_of(parameters) == "default" or not parameters.get("mscale_all_dim") or parameters["factor"] <= 1:
        return scale
    return scale * (0.1 * parameters["mscale_all_dim"] * math.log(parameters["factor"]) + 1) ** 2


def _rotary(hf: HFConfig) -> RotaryConfig:
    """Only V3 may say that its pairs are halves."""
    settings = rotary_from(hf, shared_parameters(hf), float(hf["rope_theta"]), hf["qk_rope_head_dim"])
    return replace(settings, layout="interleaved" if hf.get("rope_interleave", True) else "half")


def _experts(hf: HFConfig, **options: Any) -> ExpertsConfig:
    width = hf["moe_intermediate_size"]
    return ExpertsConfig(
        n_experts=hf["n_routed_experts"],
        n_active=hf["num_experts_per_tok"],
        d_expert=width,
        d_shared=width * (hf["n_shared_experts"] or 0),
        scale=float(hf["routed_scaling_factor"]),
        **options,
    )


def _experts_v2(hf: HFConfig) -> ExpertsConfig:
    """Groups count only where the method of choosing says so."""
    if hf["topk_method"] == "greedy":
        return _experts(hf)
    return _experts(hf, n_groups=hf["n_group"], n_active_groups=hf["topk_group"])


def _experts_v3(hf: HFConfig) -> ExpertsConfig:
    groups = {"n_groups": hf["n_group"], "n_active_groups": hf["topk_group"], "group_top": 2}
    return _experts(hf, router="sigmoid", correction=True, normalise=hf["norm_topk_prob"], **groups)


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    """ "reuse" where the layer sees what an earlier one chose, else "full"; with "_dense" where it has no experts."""
    layers, first = range(hf["num_hidden_layers"]), hf["first_k_dense_replace"] or 0
    mlps = hf["mlp_layer_types"] or ["dense" if layer < first else "sparse" for layer in layers]
    choices = _indexer_types(hf) if "index_topk" in hf else ["full"] * len(mlps)
    names = {"full": "full", "shared": "reuse"}
    return tuple(names[how] + ("_dense" if mlp == "dense" else "") for how, mlp in zip(choices, mlps, strict=True))


def _indexer_types(hf: HFConfig) -> list[str]:
    """Listed, or by a pattern of F and S, or every `index_topk_freq`-th layer from `index_skip_topk_offset` - 1 on."""
    if hf.get("indexer_types"):
        return hf["indexer_types"]
    if pattern := hf.get("index_topk_pattern"):
        return [{"F": "full", "S": "shared"}.get(each, each) for each in pattern]
    every, offset = max(hf.get("index_topk_freq", 1), 1), hf.get("index_skip_topk_offset", 2)
    return ["shared" if max(layer - offset + 1, 0) % every else "full" for layer in range(hf["num_hidden_layers"])]


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {}
    for kind in sorted(set(_layer_types(hf)) - {"full"}):
        reuse = {"sparse": replace(_sparse(hf), reuse=True)} if kind.startswith("reuse") else {}
        changes[kind] = reuse | ({"experts": None} if kind.endswith("_dense") else {})
    return changes


def _sparse(hf: HFConfig) -> SparseConfig:
    """In GLM-5 the indexer's pairs are neighbours, as the layer's own are; in DeepSeek they are halves."""
    layout = "interleaved" if hf["indexer_rope_interleave"] else "half"
    return SparseConfig(
        n_selected=hf["index_topk"], index_heads=hf["index_n_heads"], d_index=hf["index_head_dim"], index_layout=layout
    )


_CONFIG: dict[str, Rule] = {
    **CONFIG,
    "n_kv_heads": "num_attention_heads",
    "d_head": _d_head,
    "d_value": "v_head_dim",
    "latent": _latent,
    "rotary": _rotary,
    "attn_scale": _attn_scale,
    "layer_types": _layer_types,
    "by_type": _by_type,
}

_ATTN = f"{LAYER}self_attn."
_WEIGHTS = {
    **{ours: theirs for ours, theirs in WEIGHTS.items() if not any(f".attn.{part}." in ours for part in "qkv")},
    "blocks.{l}.attn.q_down.weight": f"{_ATTN}q_a_proj.weight",
    "blocks.{l}.attn.q_down.bias": f"{_ATTN}q_a_proj.bias",
    "blocks.{l}.attn.q_latent_norm.weight": f"{_ATTN}q_a_layernorm.weight",
    "blocks.{l}.attn.q_up.weight": f"{_ATTN}q_b_proj.weight|{_ATTN}q_proj.weight",
    "blocks.{l}.attn.kv_down.weight": f"{_ATTN}kv_a_proj_with_mqa.weight",
    "blocks.{l}.attn.kv_down.bias": f"{_ATTN}kv_a_proj_with_mqa.bias",
    "blocks.{l}.attn.kv_latent_norm.weight": f"{_ATTN}kv_a_layernorm.weight",
    "blocks.{l}.attn.kv_up.weight": f"{_ATTN}kv_b_proj.weight",
    **expert_weights("mlp"),
    **shared_weights("mlp.shared_experts"),
}
_V3_WEIGHTS = {**_WEIGHTS, "blocks.{l}.mlp.router.correction": f"{LAYER}mlp.gate.e_score_correction_bias"}
_INDEXER = f"{_ATTN}indexer."
_INDEXED_WEIGHTS = {
    **_V3_WEIGHTS,
    "blocks.{l}.attn.indexer.q.weight": f"{_INDEXER}wq_b.weight",
    "blocks.{l}.attn.indexer.k.weight": f"{_INDEXER}wk.weight",
    "blocks.{l}.attn.indexer.k_norm.weight": f"{_INDEXER}k_norm.weight",
    "blocks.{l}.attn.indexer.k_norm.bias": f"{_INDEXER}k_norm.bias",
    "blocks.{l}.attn.indexer.weights.weight": f"{_INDEXER}weights_proj.weight",
}

_REFUSED = {"moe_layer_freq": (1,)}

DEEPSEEK2 = Family(
    name="deepseek_v2",
    model_types=("deepseek_v2",),
    defaults={
        **LATENT_DEFAULTS,
        "first_k_dense_replace": 0,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "moe_intermediate_size": 1407,
        "num_experts_per_tok": 6,
        "routed_scaling_factor": 1.0,
        "topk_method": "greedy",
    },
    constants={**CONSTANTS, "mixer": "latent"},
    config={**_CONFIG, "experts": _experts_v2},
    weights=_WEIGHTS,
    prefixes=PREFIXES,
    # The reference implementation ignores `norm_topk_prob`, and no published model has it on.
    refused={
        **_REFUSED,
        "norm_topk_prob": (False, None),
        "scoring_func": ("softmax",),
        "topk_method": ("greedy", "group_limited_greedy"),
    },
    ignored=IGNORED,
)

_V3_DEFAULTS = {
    **LATENT_DEFAULTS,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "num_experts_per_tok": 8,
    "routed_scaling_factor": 2.5,
    "n_group": 8,
    "topk_group": 4,
    "norm_topk_prob": True,
    "max_position_embeddings": 4096,
}
_V3_REFUSED = {**_REFUSED, "scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)}

DEEPSEEK3 = Family(
    name="deepseek_v3",
    model_types=("deepseek_v3",),
    defaults=_V3_DEFAULTS,
    constants={**CONSTANTS, "mixer": "latent"},
    config={**_CONFIG, "experts": _experts_v3},
    weights=_V3_WEIGHTS,
    prefixes=PREFIXES,
    refused=_V3_REFUSED,
    # The published models have one more layer, which predicts the token after next.
    ignored=(*IGNORED, r"^model\.layers\.61\."),
)

DEEPSEEK32 = Family(
    name="deepseek_v32",
    model_types=("deepseek_v32",),
    defaults={
        **_V3_DEFAULTS,
        "max_position_embeddings": 163_840,
        "index_topk": 2048,
        "index_head_dim": 128,
        "index_n_heads": 64,
        "indexer_rope_interleave": False,
    },
    constants={**CONSTANTS, "mixer": "indexed_latent"},
    config={**_CONFIG, "experts": _experts_v3, "sparse": _sparse},
    weights=_INDEXED_WEIGHTS,
    prefixes=PREFIXES,
    refused=_V3_REFUSED,
    ignored=DEEPSEEK3.ignored,
)

GLM5 = Family(
    name="glm_moe_dsa",
    model_types=("glm_moe_dsa",),
    defaults={
        **DEEPSEEK32.defaults,
        "max_position_embeddings": 202_752,
        "rms_norm_eps": 1e-5,
        "q_lora_rank": 2048,
        "qk_nope_head_dim": 192,
        "v_head_dim": 256,
        "n_group": 1,
        "topk_group": 1,
        "index_n_heads": 32,
        "indexer_rope_interleave": True,
    },
    constants=DEEPSEEK32.constants,
    config=DEEPSEEK32.config,
    weights=_INDEXED_WEIGHTS,
    prefixes=PREFIXES,
    refused=_V3_REFUSED,
    ignored=(*IGNORED, r"^model\.layers\.78\."),
)
