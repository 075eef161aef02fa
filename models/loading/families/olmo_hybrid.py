"""OLMo Hybrid: gated delta layers with norms before, and between them OLMo 2's attention layers with norms behind."""

from __future__ import annotations

from typing import Any

from ...config import LinearConfig
from .family import Family, HFConfig
from .hybrid import DELTA_WEIGHTS, hybrid_layer_types, mixer_weights
from .llama import CONFIG, CONSTANTS, DEFAULTS, IGNORED, PREFIXES, WEIGHTS
from .rotary import rotary, shared_parameters
from .rules import activation


def _is_rotary(hf: HFConfig) -> bool:
    """A base of null turns rotation off, as released checkpoints do."""
    parameters = shared_parameters(hf)
    return "rope_theta" not in parameters or parameters["rope_theta"] is not None


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    heads = hf["linear_num_value_heads"] or hf["num_attention_heads"]
    keys = hf["linear_num_key_heads"] or hf["num_attention_heads"]
    d_head = hf["linear_key_head_dim"] or int(0.75 * hf["hidden_size"] / keys)
    linear = LinearConfig(
        n_key_heads=keys,
        conv_width=hf["linear_conv_kernel_dim"],
        qkv_activation=activation(hf),
        max_beta=2.0 if hf["linear_allow_neg_eigval"] else 1.0,
        norm_eps=1e-5,
    )
    layer = {
        "block": "pre",
        "mixer": "gated_delta",
        "positions": "none",
        "qk_norm": "none",
        "qkv_bias": False,
        "out_bias": False,
        "n_heads": heads,
        "n_kv_heads": heads,
        "d_head": d_head,
        "d_value": hf["linear_value_head_dim"] or 2 * d_head,
        "out_steps": ("gated_norm",),
        "linear": linear,
    }
    return {"linear": layer}


SECOND_NORM = "{base}layers.{l}.post_attention_layernorm.weight|{base}layers.{l}.feedforward_layer_norm.weight"
"""Before the MLP in delta layers, behind attention in the others. Checkpoints name it, and the first, in two ways."""

OLMO_HYBRID = Family(
    name="olmo_hybrid",
    model_types=("olmo_hybrid",),
    defaults={
        **DEFAULTS,
        "vocab_size": 100_352,
        "max_position_embeddings": 65_536,
        "layer_types": None,
        "linear_num_key_heads": None,
        "linear_num_value_heads": None,
        "linear_key_head_dim": None,
        "linear_value_head_dim": None,
        "linear_conv_kernel_dim": 4,
        "linear_allow_neg_eigval": True,
        "bos_token_id": None,
        "eos_token_id": 100_257,
    },
    constants={
        **{field: value for field, value in CONSTANTS.items() if field != "positions"},
        "block": "output_norm",
        "qk_norm": "full_width",
    },
    config={
        **CONFIG,
        "positions": lambda hf: "rotary" if _is_rotary(hf) else "none",
        "rotary": lambda hf: rotary(hf) if _is_rotary(hf) else None,
        "layer_types": lambda hf: hybrid_layer_types(hf, lambda layer: layer % 4 == 3),
        "by_type": _by_type,
    },
    weights={
        **WEIGHTS,
        "blocks.{l}.attn.q_norm.weight": "{base}layers.{l}.self_attn.q_norm.weight",
        "blocks.{l}.attn.k_norm.weight": "{base}layers.{l}.self_attn.k_norm.weight",
        "blocks.{l}.ln1.weight": "{base}layers.{l}.input_layernorm.weight|{base}layers.{l}.attention_layer_norm.weight",
        "blocks.{l}.ln2.weight": SECOND_NORM,
        "blocks.{l}.ln1_post.weight": SECOND_NORM,
        "blocks.{l}.ln2_post.weight": "{base}layers.{l}.post_feedforward_layernorm.weight",
        **mixer_weights(
            "gated_delta",
            "linear_attn",
            {
                **DELTA_WEIGHTS,
                "decay.weight": "a_proj.weight",
                "decay_bias": "dt_bias",
                "log_rate": "A_log",
                "out_steps.gated_norm.gate.weight": "g_proj.weight",
            },
        ),
    },
    prefixes=PREFIXES,
    ignored=IGNORED,
)
