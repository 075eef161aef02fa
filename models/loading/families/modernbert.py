"""ModernBERT (Warner et al. 2024, arXiv 2412.13663).

A pre-norm encoder with rotary positions and a gated MLP. Layers alternate between seeing all and seeing a window, each kind with
its own rotary base; the first has no norm before attention, as the embedding has one.
"""

from __future__ import annotations

from typing import Any

from ...config import RotaryConfig
from ..fill import Weight
from .bert import OTHER_HEADS
from .family import TENSORS, Family, HFConfig
from .rotary import rotary_from, shared_parameters
from .rules import activation_named, d_head, eos_token_ids, listed_layer_types

FIRST = "first"
"""The layer type of the first layer."""


def _kinds(hf: HFConfig) -> tuple[str, ...]:
    """ "full" or "sliding" for each layer."""
    every = hf["global_attn_every_n_layers"]
    alternating = ("sliding" if layer % every else "full" for layer in range(hf["num_hidden_layers"]))
    return listed_layer_types(hf) or tuple(alternating)


def _rotary(hf: HFConfig, kind: str) -> RotaryConfig:
    """Rotary settings of the layers of a kind, from either form of config.json."""
    base = float(hf["global_rope_theta" if kind == "full" else "local_rope_theta"])
    parameters = shared_parameters(hf)
    own = parameters.get(f"{kind}_attention")
    return rotary_from(hf, own if isinstance(own, dict) else parameters, base)


def _by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    kinds = _kinds(hf)
    first: dict[str, Any] = {"attn_norm": False, "mask": kinds[0], "rotary": _rotary(hf, kinds[0])}
    sliding = {"sliding": {"rotary": _rotary(hf, "sliding")}} if "sliding" in kinds[1:] else {}
    return {FIRST: first, **sliding}


def _head(hf: HFConfig) -> str:
    """Classifiers have a dense layer of the same name as the head for masked tokens has."""
    names = hf[TENSORS]
    return "mlm" if not names or ("head.dense.weight" in names and "classifier.weight" not in names) else "none"


def _optional_norm(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.{part}": f"{theirs}.{part}" for part in ("weight", "bias")}


LAYER = "{base}layers.{l}."

MODERNBERT = Family(
    name="modernbert",
    model_types=("modernbert",),
    defaults={
        "hidden_activation": "gelu",
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "classifier_bias": False,
        "classifier_activation": "gelu",
        "decoder_bias": True,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 50281,
        "eos_token_id": 50282,
    },
    constants={
        "block": "pre",
        "norm": "layer_norm",
        "embed_norm": True,
        "positions": "rotary",
        "causal": False,
        "gated_mlp": True,
    },
    config={
        "n_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "n_heads": "num_attention_heads",
        "d_head": d_head,
        "d_vocab": "vocab_size",
        "n_ctx": "max_position_embeddings",
        "d_mlp": "intermediate_size",
        "norm_eps": "norm_eps",
        "norm_bias": "norm_bias",
        "activation": lambda hf: activation_named(hf["hidden_activation"]),
        "window": lambda hf: hf["local_attention"] // 2 + 1,
        "layer_types": lambda hf: (FIRST, *_kinds(hf)[1:]),
        "by_type": _by_type,
        "rotary": lambda hf: _rotary(hf, "full"),
        "qkv_bias": "attention_bias",
        "out_bias": "attention_bias",
        "mlp_bias": "mlp_bias",
        "head": _head,
        "head_bias": "classifier_bias",
        "head_activation": lambda hf: activation_named(hf["classifier_activation"]),
        "unembed_bias": "decoder_bias",
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}embeddings.tok_embeddings.weight",
        **_optional_norm("embed_norm", "{base}embeddings.norm"),
        **_optional_norm("blocks.{l}.ln1", LAYER + "attn_norm"),
        **{
            f"blocks.{{l}}.attn.{part}.{kind}": Weight(f"{LAYER}attn.Wqkv.{kind}", f"stacked_{part}")
            for part in "qkv"
            for kind in ("weight", "bias")
        },
        "blocks.{l}.attn.o.weight": LAYER + "attn.Wo.weight",
        "blocks.{l}.attn.o.bias": LAYER + "attn.Wo.bias",
        **_optional_norm("blocks.{l}.ln2", LAYER + "mlp_norm"),
        "blocks.{l}.mlp.gate.weight": Weight(LAYER + "mlp.Wi.weight", "first_half"),
        "blocks.{l}.mlp.gate.bias": Weight(LAYER + "mlp.Wi.bias", "first_half"),
        "blocks.{l}.mlp.up.weight": Weight(LAYER + "mlp.Wi.weight", "second_half"),
        "blocks.{l}.mlp.up.bias": Weight(LAYER + "mlp.Wi.bias", "second_half"),
        "blocks.{l}.mlp.down.weight": LAYER + "mlp.Wo.weight",
        "blocks.{l}.mlp.down.bias": LAYER + "mlp.Wo.bias",
        **_optional_norm("ln_final", "{base}final_norm"),
        "head_dense.weight": "head.dense.weight",
        "head_dense.bias": "head.dense.bias",
        **_optional_norm("head_norm", "head.norm"),
        "unembed.weight": "decoder.weight",
        "unembed.bias": "decoder.bias",
    },
    prefixes=(("model.", ""), ("", "")),
    ignored=(*OTHER_HEADS, r"^head\."),
)
