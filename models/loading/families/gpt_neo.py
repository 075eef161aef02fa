"""GPT-Neo (Black et al. 2021): unscaled scores, every other layer local, learned positions."""

from __future__ import annotations

from ...errors import ConfigError
from ..fill import Weight
from .family import Family, HFConfig
from .rules import activation_named, eos_token_ids

LAYER_TYPES = {"global": "full", "local": "sliding"}


def _layer_types(hf: HFConfig) -> tuple[str, ...]:
    """`attention_types` written out: pairs of a pattern and how often it comes. Raises ConfigError for a type we do not have."""
    pairs, wanted = hf["attention_types"], hf["num_layers"]
    if (stated := sum(len(pattern) * times for pattern, times in pairs)) != wanted:
        raise ConfigError(f"attention_types lists {stated} layers, but num_layers={wanted}.")
    listed = [kind for pattern, times in pairs for kind in pattern * times]
    for kind in listed:
        if kind not in LAYER_TYPES:
            raise ConfigError(f"attention_types holds {kind!r}, which is not supported; known are {', '.join(LAYER_TYPES)}.")
    return tuple(LAYER_TYPES[kind] for kind in listed)


GPT_NEO = Family(
    name="gpt_neo",
    model_types=("gpt_neo",),
    defaults={
        "vocab_size": 50_257,
        "max_position_embeddings": 2048,
        "attention_types": [[["global", "local"], 12]],
        "intermediate_size": None,
        "window_size": 256,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 50_256,
        "eos_token_id": 50_256,
    },
    constants={
        "block": "pre",
        "norm": "layer_norm",
        "positions": "learned",
        "attn_scale": 1.0,
        "out_bias": True,
        "mlp_bias": True,
    },
    config={
        "n_layers": "num_layers",
        "d_model": "hidden_size",
        "n_heads": "num_heads",
        "d_head": lambda hf: hf["hidden_size"] // hf["num_heads"],
        "d_vocab": "vocab_size",
        "n_ctx": "max_position_embeddings",
        "d_mlp": lambda hf: hf["intermediate_size"] or 4 * hf["hidden_size"],
        "norm_eps": "layer_norm_epsilon",
        "window": "window_size",
        "layer_types": _layer_types,
        "activation": lambda hf: activation_named(hf["activation_function"]),
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}wte.weight",
        "pos_embed.weight": Weight("{base}wpe.weight", "leading_rows"),
        "blocks.{l}.ln1.weight": "{base}h.{l}.ln_1.weight",
        "blocks.{l}.ln1.bias": "{base}h.{l}.ln_1.bias",
        "blocks.{l}.attn.q.weight": "{base}h.{l}.attn.attention.q_proj.weight",
        "blocks.{l}.attn.k.weight": "{base}h.{l}.attn.attention.k_proj.weight",
        "blocks.{l}.attn.v.weight": "{base}h.{l}.attn.attention.v_proj.weight",
        "blocks.{l}.attn.o.weight": "{base}h.{l}.attn.attention.out_proj.weight",
        "blocks.{l}.attn.o.bias": "{base}h.{l}.attn.attention.out_proj.bias",
        "blocks.{l}.ln2.weight": "{base}h.{l}.ln_2.weight",
        "blocks.{l}.ln2.bias": "{base}h.{l}.ln_2.bias",
        "blocks.{l}.mlp.up.weight": "{base}h.{l}.mlp.c_fc.weight",
        "blocks.{l}.mlp.up.bias": "{base}h.{l}.mlp.c_fc.bias",
        "blocks.{l}.mlp.down.weight": "{base}h.{l}.mlp.c_proj.weight",
        "blocks.{l}.mlp.down.bias": "{base}h.{l}.mlp.c_proj.bias",
        "ln_final.weight": "{base}ln_f.weight",
        "ln_final.bias": "{base}ln_f.bias",
        "unembed.weight": "{head}lm_head.weight",
    },
    prefixes=(("transformer.", ""), ("", "")),
    ignored=(r"\bh\.\d+\.attn\.attention\.(bias|masked_bias)$",),
)
