"""gpt-oss (OpenAI 2025, arXiv 2508.10925): experts with a clamped gate, a learned sink per head, alternating windows, YaRN."""

from __future__ import annotations

from ...config import ExpertsConfig
from ..fill import Weight
from .experts import LAYER, WITHOUT_MLP
from .family import Family, HFConfig
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES
from .rotary import rotary, scaled_n_ctx, shared_parameters
from .rules import listed_layer_types

YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def _experts(hf: HFConfig) -> ExpertsConfig:
    return ExpertsConfig(
        n_experts=hf["num_local_experts"],
        n_active=hf["num_experts_per_tok"],
        d_expert=hf["intermediate_size"],
        normalise=True,
        router_bias=True,
        bias=True,
        limit=hf["swiglu_limit"],
        up_offset=1.0,
    )


def _rotary_stated(hf: HFConfig) -> HFConfig:
    """The config with its rotary parameters; a file without any means `YARN`."""
    return {**hf, "rope_parameters": shared_parameters(hf) or YARN}


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    """Every other layer slides, beginning with the first, unless `layer_types` says otherwise."""
    return listed_layer_types(hf) or tuple("full" if layer % 2 else "sliding" for layer in range(hf["num_hidden_layers"]))


_MLP = f"{LAYER}mlp."
_EXPERTS = f"{_MLP}experts."

GPT_OSS = Family(
    name="gpt_oss",
    model_types=("gpt_oss",),
    defaults={
        **DEFAULTS,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0,
        "attention_bias": True,
        "sliding_window": 128,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "swiglu_limit": 7.0,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    constants={**CONSTANTS, "normaliser": "sink_softmax", "activation": "quick_gelu"},
    config={
        **{ours: rule for ours, rule in CONFIG.items() if ours != "activation"},
        "n_ctx": lambda hf: scaled_n_ctx(_rotary_stated(hf)),
        "rotary": lambda hf: rotary(_rotary_stated(hf)),
        "window": "sliding_window",
        "layer_types": _layer_types,
        "experts": _experts,
    },
    weights={
        **WITHOUT_MLP,
        "blocks.{l}.attn.normaliser.sink": f"{LAYER}self_attn.sinks",
        "blocks.{l}.mlp.router.weight": f"{_MLP}router.weight",
        "blocks.{l}.mlp.router.bias": f"{_MLP}router.bias",
        "blocks.{l}.mlp.experts.gate.weight": Weight(f"{_EXPERTS}gate_up_proj", "experts_even"),
        "blocks.{l}.mlp.experts.gate.bias": Weight(f"{_EXPERTS}gate_up_proj_bias", "experts_even"),
        "blocks.{l}.mlp.experts.up.weight": Weight(f"{_EXPERTS}gate_up_proj", "experts_odd"),
        "blocks.{l}.mlp.experts.up.bias": Weight(f"{_EXPERTS}gate_up_proj_bias", "experts_odd"),
        "blocks.{l}.mlp.experts.down.weight": Weight(f"{_EXPERTS}down_proj", "experts_transpose"),
        "blocks.{l}.mlp.experts.down.bias": f"{_EXPERTS}down_proj_bias",
    },
    prefixes=PREFIXES,
    refused={"swiglu_alpha": (1.702,)},
    ignored=IGNORED,
)
