"""GPT-2 (Radford et al. 2019): pre-norm, learned positions, biases, fused query-key-value weights in [in, out] orientation."""

from __future__ import annotations

from ..fill import Weight
from .family import Family, HFConfig
from .rules import activation_named, eos_token_ids


def _d_head(hf: HFConfig) -> int:
    return hf["n_embd"] // hf["n_head"]


def _attn_scale(hf: HFConfig) -> float:
    return _d_head(hf) ** -0.5 if hf["scale_attn_weights"] else 1.0


GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    defaults={
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
    },
    constants={
        "block": "pre",
        "norm": "layer_norm",
        "positions": "learned",
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
    },
    config={
        "n_layers": "n_layer",
        "d_model": "n_embd",
        "n_heads": "n_head",
        "d_head": _d_head,
        "d_vocab": "vocab_size",
        "n_ctx": "n_positions",
        "d_mlp": lambda hf: hf["n_inner"] or 4 * hf["n_embd"],
        "norm_eps": "layer_norm_epsilon",
        "attn_scale": _attn_scale,
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
        "blocks.{l}.attn.q.weight": Weight("{base}h.{l}.attn.c_attn.weight", "columns_q"),
        "blocks.{l}.attn.q.bias": Weight("{base}h.{l}.attn.c_attn.bias", "columns_q"),
        "blocks.{l}.attn.k.weight": Weight("{base}h.{l}.attn.c_attn.weight", "columns_k"),
        "blocks.{l}.attn.k.bias": Weight("{base}h.{l}.attn.c_attn.bias", "columns_k"),
        "blocks.{l}.attn.v.weight": Weight("{base}h.{l}.attn.c_attn.weight", "columns_v"),
        "blocks.{l}.attn.v.bias": Weight("{base}h.{l}.attn.c_attn.bias", "columns_v"),
        "blocks.{l}.attn.o.weight": Weight("{base}h.{l}.attn.c_proj.weight", "transpose"),
        "blocks.{l}.attn.o.bias": "{base}h.{l}.attn.c_proj.bias",
        "blocks.{l}.ln2.weight": "{base}h.{l}.ln_2.weight",
        "blocks.{l}.ln2.bias": "{base}h.{l}.ln_2.bias",
        "blocks.{l}.mlp.up.weight": Weight("{base}h.{l}.mlp.c_fc.weight", "transpose"),
        "blocks.{l}.mlp.up.bias": "{base}h.{l}.mlp.c_fc.bias",
        "blocks.{l}.mlp.down.weight": Weight("{base}h.{l}.mlp.c_proj.weight", "transpose"),
        "blocks.{l}.mlp.down.bias": "{base}h.{l}.mlp.c_proj.bias",
        "ln_final.weight": "{base}ln_f.weight",
        "ln_final.bias": "{base}ln_f.bias",
        "unembed.weight": "{head}lm_head.weight",
    },
    prefixes=(("transformer.", ""), ("", "")),
    refused={"scale_attn_by_inverse_layer_idx": (False, None), "add_cross_attention": (False, None)},
    ignored=(r"\bh\.\d+\.attn\.(bias|masked_bias)$",),
)
