"""Mamba-2 (Dao & Gu 2024, arXiv 2405.21060): one mixer per layer, neither attention nor MLP, no positions."""

from __future__ import annotations

import math

from ...config import LinearConfig
from ..fill import Weight
from .family import Family, HFConfig
from .rules import activation, eos_token_ids

NO_LIMIT = ((0.0, math.inf), [0.0, math.inf], [0.0, {"__float__": "Infinity"}])


def _linear(hf: HFConfig) -> LinearConfig:
    return LinearConfig(
        n_key_heads=hf["n_groups"],
        conv_width=hf["conv_kernel"],
        conv_bias=hf["use_conv_bias"],
        qkv_activation=activation(hf),
        norm_groups=hf["n_groups"],
        gate_first=True,
    )


MAMBA2 = Family(
    name="mamba2",
    model_types=("mamba2",),
    defaults={
        "num_heads": 128,
        "head_dim": 64,
        "vocab_size": 32_768,
        "hidden_size": 4096,
        "state_size": 128,
        "num_hidden_layers": 64,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 8,
        "use_conv_bias": True,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    constants={
        "block": "pre",
        "norm": "rms_norm",
        "positions": "none",
        "mixer": "mamba2",
        "attn_scale": 1.0,
        "out_steps": ("gated_norm",),
        "n_ctx": 1 << 20,
    },
    config={
        "n_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "n_heads": "num_heads",
        "d_head": "state_size",
        "d_value": "head_dim",
        "d_vocab": "vocab_size",
        "norm_eps": "layer_norm_epsilon",
        "linear": _linear,
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}embeddings.weight",
        "blocks.{l}.ln1.weight": "{base}layers.{l}.norm.weight",
        **{
            f"blocks.{{l}}.attn.{ours}": Weight(f"{{base}}layers.{{l}}.mixer.{theirs}", transform)
            for ours, theirs, transform in (
                ("q.weight", "in_proj.weight", "zvkqd_q"),
                ("k.weight", "in_proj.weight", "zvkqd_k"),
                ("v.weight", "in_proj.weight", "zvkqd_v"),
                ("out_steps.gated_norm.gate.weight", "in_proj.weight", "zvkqd_z"),
                ("dt.weight", "in_proj.weight", "zvkqd_d"),
                ("dt.bias", "dt_bias", "as_is"),
                ("log_rate", "A_log", "as_is"),
                ("D", "D", "as_is"),
                ("out_steps.gated_norm.weight", "norm.weight", "as_is"),
                ("o.weight", "out_proj.weight", "as_is"),
                *((f"conv_{part}.{kind}", f"conv1d.{kind}", f"vkq_{part}") for part in "qkv" for kind in ("weight", "bias")),
            )
        },
        "ln_final.weight": "{base}norm_f.weight",
        "unembed.weight": "lm_head.weight",
    },
    prefixes=(("backbone.", ""), ("", "")),
    refused={"use_bias": (False,), "time_step_limit": NO_LIMIT},
)
