"""MPT (MosaicML 2023): ALiBi instead of positions, no bias anywhere, fused weights; attention options in a dict of their own."""

from __future__ import annotations

from typing import Any

from ...config import AlibiConfig
from ...errors import ConfigError
from ..fill import Weight
from .family import Family, HFConfig
from .rules import eos_token_ids

ATTENTION_DEFAULTS = {
    "attn_type": "multihead_attention",
    "alibi": True,
    "alibi_bias_max": 8,
    "softmax_scale": None,
    "clip_qkv": None,
    "prefix_lm": False,
    "qk_ln": False,
    "attn_uses_sequence_id": False,
}
ATTENTION_HAD = {
    "attn_type": ("multihead_attention",),
    "alibi": (True,),
    "clip_qkv": (None, 0),
    "prefix_lm": (False,),
    "qk_ln": (False,),
    "attn_uses_sequence_id": (False,),
}
"""Options of `attn_config`, and the values that are supported."""


def _attention(hf: HFConfig) -> dict[str, Any]:
    """`attn_config` with its defaults. Raises ConfigError naming an option that is not supported."""
    options = {**ATTENTION_DEFAULTS, **(hf["attn_config"] or {})}
    for option, supported in ATTENTION_HAD.items():
        if options[option] not in supported:
            raise ConfigError(f"attn_config has {option}={options[option]!r}, which is not supported for mpt checkpoints.")
    return options


MPT = Family(
    name="mpt",
    model_types=("mpt",),
    defaults={
        "vocab_size": 50_368,
        "max_seq_len": 2048,
        "expansion_ratio": 4,
        "attn_config": None,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    },
    constants={
        "block": "pre",
        "norm": "layer_norm",
        "norm_bias": False,
        "positions": "none",
        "score_terms": ("alibi",),
        "activation": "gelu",
    },
    config={
        "n_layers": "n_layers",
        "d_model": "d_model",
        "n_heads": "n_heads",
        "d_head": lambda hf: hf["d_model"] // hf["n_heads"],
        "d_vocab": "vocab_size",
        "n_ctx": "max_seq_len",
        "d_mlp": lambda hf: int(hf["expansion_ratio"] * hf["d_model"]),
        "norm_eps": "layer_norm_epsilon",
        "alibi": lambda hf: AlibiConfig(max_bias=float(_attention(hf)["alibi_bias_max"])),
        "attn_scale": lambda hf: float(_attention(hf)["softmax_scale"] or 0.0),
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}wte.weight",
        "blocks.{l}.ln1.weight": "{base}blocks.{l}.norm_1.weight",
        "blocks.{l}.attn.q.weight": Weight("{base}blocks.{l}.attn.Wqkv.weight", "stacked_q"),
        "blocks.{l}.attn.k.weight": Weight("{base}blocks.{l}.attn.Wqkv.weight", "stacked_k"),
        "blocks.{l}.attn.v.weight": Weight("{base}blocks.{l}.attn.Wqkv.weight", "stacked_v"),
        "blocks.{l}.attn.o.weight": "{base}blocks.{l}.attn.out_proj.weight",
        "blocks.{l}.ln2.weight": "{base}blocks.{l}.norm_2.weight",
        "blocks.{l}.mlp.up.weight": "{base}blocks.{l}.ffn.up_proj.weight",
        "blocks.{l}.mlp.down.weight": "{base}blocks.{l}.ffn.down_proj.weight",
        "ln_final.weight": "{base}norm_f.weight",
        "unembed.weight": "{head}lm_head.weight",
    },
    prefixes=(("transformer.", ""), ("", "")),
    refused={"no_bias": (True,), "logit_scale": (None,), "norm_type": ("low_precision_layernorm", "layernorm")},
)
