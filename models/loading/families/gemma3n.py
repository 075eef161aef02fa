"""Gemma 3n, its text part: several streams (AltUp), a low-rank branch (LAuReL), embeddings of each layer's own, sparse gates.

Values are normed; the last layers use the keys and values of the last layer of their kind before them; the width of the MLP and
the share of its gates that are cut may differ by layer. `altup_coef_clip` bounds coefficients in training only.
"""

from __future__ import annotations

from typing import Any

from ...config import AltUpConfig, RotaryConfig
from ...errors import ConfigError
from ..fill import Weight
from .family import Family, HFConfig, Rule
from .gemma import DEFAULTS, GEMMA3, GEMMA_CONFIG, SANDWICH_WEIGHTS
from .gemma4 import GEMMA4, LAYER_EMBEDDINGS, source
from .llama import HEAD_NORMS
from .rotary import rotary_from, shared_parameters
from .rules import activation_named, every_nth_full, listed_layer_types


def _by_layer(hf: HFConfig, field: str, default: list[Any]) -> list[Any]:
    """A field that has a value for each layer."""
    stated = hf.get(field)
    values = default if stated is None else stated if isinstance(stated, list) else [stated] * hf["num_hidden_layers"]
    if len(values) != hf["num_hidden_layers"]:
        raise ConfigError(f"{field} must have a value for each of {hf['num_hidden_layers']} layers, got {len(values)}.")
    return values


def _widths(hf: HFConfig) -> list[int]:
    return _by_layer(hf, "intermediate_size", [16_384] * hf["num_hidden_layers"])


def _sparsities(hf: HFConfig) -> list[float]:
    """The first ten layers of a deeper model are sparse unless the file says otherwise."""
    n_layers = hf["num_hidden_layers"]
    return _by_layer(hf, "activation_sparsity_pattern", [0.95 if layer < 10 < n_layers else 0.0 for layer in range(n_layers)])


def _rotary(hf: HFConfig, kind: str) -> RotaryConfig:
    """As in Gemma 3: the larger base, and the scaling if there is one, in full layers."""
    if kind == "sliding":
        return rotary_from(hf, shared_parameters(hf).get("sliding_attention") or {}, float(hf["rope_local_base_freq"]))
    full: Any = GEMMA3.config["rotary"]
    return full(hf)


def _layers(hf: HFConfig) -> list[tuple[str, dict[str, Any]]]:
    """A name and the fields of each layer's type: its mask, what it does about sharing, and what is special in its MLP."""
    kinds = listed_layer_types(hf) or every_nth_full(hf, 5)
    first = hf["num_hidden_layers"] - hf["num_kv_shared_layers"]
    sources = {kind: source(kinds, first, kind) for kind in set(kinds[first:])}
    widths, layers = _widths(hf), []
    for layer, (kind, width, share) in enumerate(zip(kinds, widths, _sparsities(hf), strict=True)):
        name, fields = kind, {"mask": kind, "rotary": _rotary(hf, kind), "d_mlp": width}
        if layer >= first:
            name, fields = f"{name}_reader", fields | {"mixer": "kv_reader", "kv_from": sources[kind]}
        elif layer == sources.get(kind):
            name, fields = f"{name}_store", fields | {"mixer": "kv_store"}
        if share:
            name, fields = f"{name}_sparse_{share}", fields | {"mlp": "sparse_gated", "mlp_sparsity": float(share)}
        layers.append((name if width == widths[0] else f"{name}_{width}", fields))
    return layers


def _altup(hf: HFConfig) -> AltUpConfig:
    return AltUpConfig(hf["altup_num_inputs"], hf["altup_active_idx"], hf["altup_correct_scale"], hf["laurel_rank"])


CONFIG: dict[str, Rule] = {
    **GEMMA_CONFIG,
    "d_mlp": lambda hf: _widths(hf)[0],
    "activation": lambda hf: activation_named(hf["hidden_activation"]),
    "logit_softcap": "final_logit_softcapping",
    "window": "sliding_window",
    "layer_types": lambda hf: tuple(name for name, _ in _layers(hf)),
    "by_type": lambda hf: dict(_layers(hf)),
    "rotary": lambda hf: _rotary(hf, "full"),
    "d_layer_embed": "hidden_size_per_layer_input",
    "d_layer_vocab": "vocab_size_per_layer_input",
    "altup": _altup,
}

STREAMS: dict[str, str | Weight] = {
    "streams.enter_proj": Weight("{base}altup_projections.{e}.weight"),
    "streams.leave_proj": Weight("{base}altup_unembed_projections.{e}.weight"),
    "blocks.{l}.altup.router.weight": "{base}layers.{l}.altup.modality_router.weight",
    "blocks.{l}.altup.norm_weight": "{base}layers.{l}.altup.router_norm.weight",
    "blocks.{l}.altup.predicting.weight": "{base}layers.{l}.altup.prediction_coefs.weight",
    "blocks.{l}.altup.correcting.weight": "{base}layers.{l}.altup.correction_coefs.weight",
    "blocks.{l}.altup.read_scale": "{base}layers.{l}.altup.correct_output_scale",
    "blocks.{l}.laurel.left.weight": "{base}layers.{l}.laurel.linear_left.weight",
    "blocks.{l}.laurel.right.weight": "{base}layers.{l}.laurel.linear_right.weight",
    "blocks.{l}.laurel.norm.weight": "{base}layers.{l}.laurel.post_laurel_norm.weight",
}

GEMMA3N = Family(
    name="gemma3n",
    model_types=("gemma3n_text", "gemma3n"),
    defaults={
        **DEFAULTS,
        "vocab_size": 262_400,
        "hidden_size": 2048,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 32_768,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window": 512,
        "final_logit_softcapping": 30.0,
        "vocab_size_per_layer_input": 262_144,
        "hidden_size_per_layer_input": 256,
        "num_kv_shared_layers": 15,
        "altup_num_inputs": 4,
        "altup_active_idx": 0,
        "altup_correct_scale": True,
        "laurel_rank": 64,
    },
    constants={**GEMMA4.constants, "block": "altup"},
    config=CONFIG,
    weights={**SANDWICH_WEIGHTS, **HEAD_NORMS, **LAYER_EMBEDDINGS, **STREAMS},
    prefixes=GEMMA3.prefixes,
    refused={"use_bidirectional_attention": (None, False)},
    # A gain that is not used is in the file nevertheless.
    ignored=(*GEMMA4.ignored, r"\.altup\.correct_output_scale$"),
    nested="text_config",
)
