"""Gemma 4, its text part: sandwich blocks with a scalar, and embeddings of each layer's own in the smaller models.

Full layers have wider heads, of which a part of the pairs turns; values are normed; the last layers use the keys and values
of the last layer of their kind before them. Mixtures of experts (26B) are not supported.
"""

from __future__ import annotations

from typing import Any

from ...config import RotaryConfig
from ...errors import ConfigError
from .family import Family, HFConfig, Rule
from .gemma import DEFAULTS, GEMMA3, GEMMA_CONFIG, SANDWICH_WEIGHTS
from .llama import HEAD_NORMS
from .rotary import Parameters, rotary_from, shared_parameters
from .rules import activation_named, every_nth_full, listed_layer_types

ROTARY: dict[str, Parameters] = {
    "sliding": {"rope_theta": 10_000.0},
    "full": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}
"""What the two kinds of layers have unless the file says otherwise."""


def _kinds(hf: HFConfig) -> tuple[str, ...]:
    """ "sliding" or "full" of each layer; the last is always full."""
    kinds = listed_layer_types(hf) or every_nth_full(hf, 6)
    return (*kinds[:-1], "full")


def source(kinds: tuple[str, ...], first: int, kind: str) -> int:
    """The last layer of a kind before the layers that share, which start at `first`."""
    if kind not in kinds[:first]:
        raise ConfigError(f"num_kv_shared_layers leaves no {kind} layer with keys of its own for those that share them.")
    return first - 1 - kinds[:first][::-1].index(kind)


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    """The kind of each layer, with what it does about sharing: "full", "full_store" or "full_reader", and so on."""
    kinds, shared = _kinds(hf), hf["num_kv_shared_layers"]
    first = hf["num_hidden_layers"] - shared
    names = [*kinds[:first], *(f"{kind}_reader" for kind in kinds[first:])]
    for kind in set(kinds[first:]):
        names[source(kinds, first, kind)] = f"{kind}_store"
    return tuple(names)


def _full_heads(hf: HFConfig) -> dict[str, int]:
    """Width and number of the key heads of full layers; newer files state them for each layer."""
    listed = hf.get("per_layer_config")
    if listed is None:
        n_kv_heads = hf.get("num_global_key_value_heads") if hf["attention_k_eq_v"] else None
        return {"d_head": hf["global_head_dim"]} | ({} if n_kv_heads is None else {"n_kv_heads": n_kv_heads})
    stated = [listed.get(str(layer), {}) for layer, kind in enumerate(_kinds(hf)) if kind == "full"]
    names = {"head_dim": "d_head", "num_key_value_heads": "n_kv_heads"}
    n_others = sum(kind != "full" and bool(listed.get(str(layer))) for layer, kind in enumerate(_kinds(hf)))
    if n_others or any(each != stated[0] for each in stated) or set(stated[0]) - set(names):
        raise ConfigError(
            f"per_layer_config must state head_dim and num_key_value_heads of all full layers alike, got {listed!r}."
        )
    return {names[field]: value for field, value in stated[0].items()}


def _rotary(hf: HFConfig, kind: str) -> RotaryConfig:
    parameters = shared_parameters(hf).get(f"{kind}_attention") or ROTARY[kind]
    return rotary_from(hf, parameters, float(parameters["rope_theta"]))


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    kinds, first = _kinds(hf), hf["num_hidden_layers"] - hf["num_kv_shared_layers"]
    full = {**_full_heads(hf), "keys_as_values": hf["attention_k_eq_v"]}
    d_mlp = hf["intermediate_size"] * (2 if hf["use_double_wide_mlp"] else 1)
    by_type = {}
    for name in set(_layer_types(hf)):
        kind, _, role = name.partition("_")
        fields: dict[str, Any] = {"mask": kind, "rotary": _rotary(hf, kind), **(full if kind == "full" else {})}
        if role == "store":
            fields["mixer"] = "kv_store"
        elif role == "reader":
            fields |= {"mixer": "kv_reader", "kv_from": source(kinds, first, kind), "d_mlp": d_mlp}
        by_type[name] = fields
    return by_type


CONFIG: dict[str, Rule] = {
    **GEMMA_CONFIG,
    "activation": lambda hf: activation_named(hf["hidden_activation"]),
    "logit_softcap": "final_logit_softcapping",
    "window": "sliding_window",
    "layer_types": _layer_types,
    "by_type": _by_type,
    "rotary": lambda hf: _rotary(hf, "sliding"),
    "d_layer_embed": "hidden_size_per_layer_input",
    "d_layer_vocab": "vocab_size_per_layer_input",
}

LAYER_EMBEDDINGS = {
    "layer_embeddings.table.weight": "{base}embed_tokens_per_layer.weight",
    "layer_embeddings.proj.weight": "{base}per_layer_model_projection.weight",
    "layer_embeddings.norm_weight": "{base}per_layer_projection_norm.weight",
    "blocks.{l}.layer_embed.gate.weight": "{base}layers.{l}.per_layer_input_gate.weight",
    "blocks.{l}.layer_embed.out.weight": "{base}layers.{l}.per_layer_projection.weight",
    "blocks.{l}.layer_embed.norm.weight": "{base}layers.{l}.post_per_layer_input_norm.weight",
}

GEMMA4 = Family(
    name="gemma4",
    model_types=("gemma4_text", "gemma4"),
    defaults={
        **DEFAULTS,
        "vocab_size": 262_144,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "global_head_dim": 512,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131_072,
        "sliding_window": 512,
        "final_logit_softcapping": None,
        "vocab_size_per_layer_input": 262_144,
        "hidden_size_per_layer_input": 256,
        "attention_k_eq_v": False,
        "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False,
    },
    constants={
        "norm": "rms_norm",
        "positions": "rotary",
        "gated_mlp": True,
        "block": "sandwich_scaled",
        "qk_norm": "per_head",
        "v_norm": True,
        "attn_scale": 1.0,
    },
    config=CONFIG,
    weights={**SANDWICH_WEIGHTS, **HEAD_NORMS, **LAYER_EMBEDDINGS, "blocks.{l}.scalar": "{base}layers.{l}.layer_scalar"},
    prefixes=GEMMA3.prefixes,
    # In text, "vision" is the ordinary causal mask.
    refused={"use_bidirectional_attention": (None, False, "vision"), "enable_moe_block": (False, None)},
    # Published files hold keys and values of the layers that use others' too.
    ignored=(
        *(r"\.self_attn\.(k_proj|v_proj|k_norm|v_norm)\.", r"rotary_emb\.inv_freq$"),
        r"^(model\.)?(vision_tower|audio_tower|embed_vision|embed_audio|multi_modal_projector)\.",
    ),
    nested="text_config",
)
