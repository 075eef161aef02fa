"""Falcon (Almazrouei et al. 2023, arXiv 2311.16867): parallel blocks, multi-query or grouped keys, rotary positions or ALiBi.

The 7B model shares one norm between attention and MLP and one key between all queries; the 40B and 180B models ("new decoder
architecture") have a norm for each and a key per group; the models trained on RefinedWeb alone are sequential, with ALiBi.
"""

from __future__ import annotations

from ...config import AlibiConfig, RotaryConfig
from ...errors import ConfigError
from ..fill import Weight
from .family import Family, HFConfig
from .rotary import rotary, scaled_n_ctx
from .rules import activation_named, d_head, eos_token_ids


def _n_kv_heads(hf: HFConfig) -> int:
    if hf["new_decoder_architecture"]:
        return hf["num_kv_heads"] or hf["num_attention_heads"]
    return 1 if hf["multi_query"] else hf["num_attention_heads"]


def _block(hf: HFConfig) -> str:
    """The order of a block; which norms it has depends on the architecture too. Raises ConfigError for a mix that none has."""
    norms, is_new = hf["num_ln_in_parallel_attn"], hf["new_decoder_architecture"]
    if not hf["parallel_attn"]:
        if is_new:
            raise ConfigError("parallel_attn=False with new_decoder_architecture=True is not supported for falcon checkpoints.")
        return "pre"
    if norms == 2 and not is_new:
        raise ConfigError("num_ln_in_parallel_attn=2 needs new_decoder_architecture=True in a falcon checkpoint.")
    return "parallel" if is_new and norms in (None, 2) else "parallel_shared"


def _rotary(hf: HFConfig) -> RotaryConfig | None:
    return None if hf["alibi"] else rotary(hf)


FALCON = Family(
    name="falcon",
    model_types=("falcon",),
    defaults={
        "vocab_size": 65_024,
        "num_ln_in_parallel_attn": None,
        "layer_norm_epsilon": 1e-5,
        "num_kv_heads": None,
        "alibi": False,
        "new_decoder_architecture": False,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "max_position_embeddings": 2048,
        "rope_theta": 10_000.0,
        "ffn_hidden_size": None,
        "activation": "gelu",
        "tie_word_embeddings": True,
        "bos_token_id": 11,
        "eos_token_id": 11,
    },
    constants={"norm": "layer_norm"},
    config={
        "n_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "n_heads": "num_attention_heads",
        "n_kv_heads": _n_kv_heads,
        "d_head": d_head,
        "d_vocab": "vocab_size",
        "n_ctx": scaled_n_ctx,
        "d_mlp": lambda hf: hf["ffn_hidden_size"] or 4 * hf["hidden_size"],
        "block": _block,
        "norm_eps": "layer_norm_epsilon",
        "positions": lambda hf: "none" if hf["alibi"] else "rotary",
        "rotary": _rotary,
        "score_terms": lambda hf: ("alibi",) if hf["alibi"] else (),
        "alibi": lambda hf: AlibiConfig(is_rounded=True, is_scaled=True) if hf["alibi"] else None,
        "activation": lambda hf: activation_named(hf["activation"]),
        "qkv_bias": "bias",
        "out_bias": "bias",
        "mlp_bias": "bias",
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}word_embeddings.weight",
        "blocks.{l}.ln1.weight": "{base}h.{l}.ln_attn.weight|{base}h.{l}.input_layernorm.weight",
        "blocks.{l}.ln1.bias": "{base}h.{l}.ln_attn.bias|{base}h.{l}.input_layernorm.bias",
        "blocks.{l}.attn.q.weight": Weight("{base}h.{l}.self_attention.query_key_value.weight", "heads_q"),
        "blocks.{l}.attn.q.bias": Weight("{base}h.{l}.self_attention.query_key_value.bias", "heads_q"),
        "blocks.{l}.attn.k.weight": Weight("{base}h.{l}.self_attention.query_key_value.weight", "heads_k"),
        "blocks.{l}.attn.k.bias": Weight("{base}h.{l}.self_attention.query_key_value.bias", "heads_k"),
        "blocks.{l}.attn.v.weight": Weight("{base}h.{l}.self_attention.query_key_value.weight", "heads_v"),
        "blocks.{l}.attn.v.bias": Weight("{base}h.{l}.self_attention.query_key_value.bias", "heads_v"),
        "blocks.{l}.attn.o.weight": "{base}h.{l}.self_attention.dense.weight",
        "blocks.{l}.attn.o.bias": "{base}h.{l}.self_attention.dense.bias",
        "blocks.{l}.ln2.weight": "{base}h.{l}.ln_mlp.weight|{base}h.{l}.post_attention_layernorm.weight",
        "blocks.{l}.ln2.bias": "{base}h.{l}.ln_mlp.bias|{base}h.{l}.post_attention_layernorm.bias",
        "blocks.{l}.mlp.up.weight": "{base}h.{l}.mlp.dense_h_to_4h.weight",
        "blocks.{l}.mlp.up.bias": "{base}h.{l}.mlp.dense_h_to_4h.bias",
        "blocks.{l}.mlp.down.weight": "{base}h.{l}.mlp.dense_4h_to_h.weight",
        "blocks.{l}.mlp.down.bias": "{base}h.{l}.mlp.dense_4h_to_h.bias",
        "ln_final.weight": "{base}ln_f.weight",
        "ln_final.bias": "{base}ln_f.bias",
        "unembed.weight": "{head}lm_head.weight",
    },
    prefixes=(("transformer.", ""), ("", "")),
)
