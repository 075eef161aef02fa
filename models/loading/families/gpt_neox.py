"""GPT-NeoX and Pythia (Black et al. 2022, arXiv 2204.06745): parallel blocks, partial rotary, fused weights per head."""

from __future__ import annotations

from ...config import RotaryConfig
from ..fill import Weight
from .family import Family, HFConfig
from .rotary import rotary_from, scaled_n_ctx, shared_parameters
from .rules import activation, d_head, eos_token_ids, ignored_buffers


def _rotated(hf: HFConfig) -> int:
    """Dimensions of each head that are rotated; 0 leaves the model without positions."""
    part = {"partial_rotary_factor": hf["rotary_pct"], **shared_parameters(hf)}["partial_rotary_factor"]
    return int(d_head(hf) * part)


def _rotary(hf: HFConfig) -> RotaryConfig | None:
    dim = _rotated(hf)
    if dim == 0:
        return None
    return rotary_from(hf, shared_parameters(hf), float(hf["rotary_emb_base"]), None if dim == d_head(hf) else dim)


GPT_NEOX = Family(
    name="gpt_neox",
    model_types=("gpt_neox",),
    defaults={
        "hidden_act": "gelu",
        "rotary_pct": 0.25,
        "rotary_emb_base": 10_000.0,
        "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "attention_bias": True,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    constants={"norm": "layer_norm", "mlp_bias": True},
    config={
        "n_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "n_heads": "num_attention_heads",
        "d_head": d_head,
        "d_vocab": "vocab_size",
        "n_ctx": scaled_n_ctx,
        "d_mlp": "intermediate_size",
        "block": lambda hf: "parallel" if hf["use_parallel_residual"] else "pre",
        "norm_eps": "layer_norm_eps",
        "positions": lambda hf: "rotary" if _rotated(hf) else "none",
        "rotary": _rotary,
        "activation": activation,
        "qkv_bias": "attention_bias",
        "out_bias": "attention_bias",
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}embed_in.weight",
        "blocks.{l}.ln1.weight": "{base}layers.{l}.input_layernorm.weight",
        "blocks.{l}.ln1.bias": "{base}layers.{l}.input_layernorm.bias",
        "blocks.{l}.attn.q.weight": Weight("{base}layers.{l}.attention.query_key_value.weight", "heads_q"),
        "blocks.{l}.attn.q.bias": Weight("{base}layers.{l}.attention.query_key_value.bias", "heads_q"),
        "blocks.{l}.attn.k.weight": Weight("{base}layers.{l}.attention.query_key_value.weight", "heads_k"),
        "blocks.{l}.attn.k.bias": Weight("{base}layers.{l}.attention.query_key_value.bias", "heads_k"),
        "blocks.{l}.attn.v.weight": Weight("{base}layers.{l}.attention.query_key_value.weight", "heads_v"),
        "blocks.{l}.attn.v.bias": Weight("{base}layers.{l}.attention.query_key_value.bias", "heads_v"),
        "blocks.{l}.attn.o.weight": "{base}layers.{l}.attention.dense.weight",
        "blocks.{l}.attn.o.bias": "{base}layers.{l}.attention.dense.bias",
        "blocks.{l}.ln2.weight": "{base}layers.{l}.post_attention_layernorm.weight",
        "blocks.{l}.ln2.bias": "{base}layers.{l}.post_attention_layernorm.bias",
        "blocks.{l}.mlp.up.weight": "{base}layers.{l}.mlp.dense_h_to_4h.weight",
        "blocks.{l}.mlp.up.bias": "{base}layers.{l}.mlp.dense_h_to_4h.bias",
        "blocks.{l}.mlp.down.weight": "{base}layers.{l}.mlp.dense_4h_to_h.weight",
        "blocks.{l}.mlp.down.bias": "{base}layers.{l}.mlp.dense_4h_to_h.bias",
        "ln_final.weight": "{base}final_layer_norm.weight",
        "ln_final.bias": "{base}final_layer_norm.bias",
        "unembed.weight": "{head}embed_out.weight",
    },
    prefixes=(("gpt_neox.", ""), ("", "")),
    ignored=ignored_buffers("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"),
)
