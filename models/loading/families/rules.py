"""Rules that several families share: how to read one field of our config from config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError, closest
from .family import HFConfig

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
LAYER_TYPES = {"full_attention": "full", "sliding_attention": "sliding"}


def activation_named(name: Any) -> str:
    """Our name of an activation function. Raises ConfigError for one we do not have."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ConfigError(
            f"activation {name!r} is not supported; known are {', '.join(ACTIVATIONS)}{closest(str(name), ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


def activation(hf: HFConfig) -> str:
    """`hidden_act`, by our name."""
    return activation_named(hf["hidden_act"])


def d_head(hf: HFConfig) -> int:
    """`head_dim`, or the model's width shared out among its heads."""
    if hf.get("head_dim"):
        return hf["head_dim"]
    if hf["hidden_size"] % hf["num_attention_heads"]:
        raise ConfigError(
            f"hidden_size={hf['hidden_size']} is not a multiple of num_attention_heads={hf['num_attention_heads']}."
        )
    return hf["hidden_size"] // hf["num_attention_heads"]


def n_kv_heads(hf: HFConfig) -> int:
    """`num_key_value_heads`, or one per query head."""
    return hf.get("num_key_value_heads") or hf["num_attention_heads"]


def eos_token_ids(hf: HFConfig) -> tuple[int, ...]:
    """`eos_token_id`, which is one id, a list, or null."""
    stated = hf.get("eos_token_id")
    return () if stated is None else tuple(stated) if isinstance(stated, list) else (stated,)


def listed_layer_types(hf: HFConfig, known: Mapping[str, str] = LAYER_TYPES) -> tuple[str, ...]:
    """`layer_types` in our words; empty where there are none. Raises ConfigError for a type that is not among `known`."""
    listed = hf.get("layer_types") or ()
    for kind in listed:
        if kind not in known:
            raise ConfigError(f"layer_types holds {kind!r}, which is not supported; known are {', '.join(known)}.")
    return tuple(known[kind] for kind in listed)


def every_nth_full(hf: HFConfig, n: int) -> tuple[str, ...]:
    """Sliding layers, but for every n-th, which sees all."""
    return tuple("sliding" if (layer + 1) % n else "full" for layer in range(hf["num_hidden_layers"]))


def ignored_buffers(*names: str) -> tuple[str, ...]:
    """Patterns of buffers that older checkpoints saved beside their weights."""
    return tuple(rf"\.{re.escape(name)}$" for name in names)
