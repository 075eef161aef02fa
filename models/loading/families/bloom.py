"""BLOOM (Scao et al. 2022, arXiv 2211.05100): ALiBi instead of positions, a norm after the embedding, fused weights per head."""

from __future__ import annotations

from ..fill import Weight
from .family import Family
from .rules import d_head, eos_token_ids

BLOOM = Family(
    name="bloom",
    model_types=("bloom",),
    aliases={"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_embed": "hidden_size"},
    defaults={
        "vocab_size": 250_880,
        "layer_norm_epsilon": 1e-5,
        "seq_length": 2048,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    constants={
        "block": "pre",
        "norm": "layer_norm",
        "positions": "none",
        "score_terms": ("alibi",),
        "embed_norm": True,
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
        "activation": "gelu_tanh",
    },
    config={
        "n_layers": "num_hidden_layers",
        "d_model": "hidden_size",
        "n_heads": "num_attention_heads",
        "d_head": d_head,
        "d_vocab": "vocab_size",
        # The biases hold at any length; this is the one the model was trained with.
        "n_ctx": "seq_length",
        "d_mlp": lambda hf: 4 * hf["hidden_size"],
        "norm_eps": "layer_norm_epsilon",
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}word_embeddings.weight",
        "embed_norm.weight": "{base}word_embeddings_layernorm.weight",
        "embed_norm.bias": "{base}word_embeddings_layernorm.bias",
        "blocks.{l}.ln1.weight": "{base}h.{l}.input_layernorm.weight",
        "blocks.{l}.ln1.bias": "{base}h.{l}.input_layernorm.bias",
        "blocks.{l}.attn.q.weight": Weight("{base}h.{l}.self_attention.query_key_value.weight", "heads_q"),
        "blocks.{l}.attn.q.bias": Weight("{base}h.{l}.self_attention.query_key_value.bias", "heads_q"),
        "blocks.{l}.attn.k.weight": Weight("{base}h.{l}.self_attention.query_key_value.weight", "heads_k"),
        "blocks.{l}.attn.k.bias": Weight("{base}h.{l}.self_attention.query_key_value.bias", "heads_k"),
        "blocks.{l}.attn.v.weight": Weight("{base}h.{l}.self_attention.query_key_value.weight", "heads_v"),
        "blocks.{l}.attn.v.bias": Weight("{base}h.{l}.self_attention.query_key_value.bias", "heads_v"),
        "blocks.{l}.attn.o.weight": "{base}h.{l}.self_attention.dense.weight",
        "blocks.{l}.attn.o.bias": "{base}h.{l}.self_attention.dense.bias",
        "blocks.{l}.ln2.weight": "{base}h.{l}.post_attention_layernorm.weight",
        "blocks.{l}.ln2.bias": "{base}h.{l}.post_attention_layernorm.bias",
        "blocks.{l}.mlp.up.weight": "{base}h.{l}.mlp.dense_h_to_4h.weight",
        "blocks.{l}.mlp.up.bias": "{base}h.{l}.mlp.dense_h_to_4h.bias",
        "blocks.{l}.mlp.down.weight": "{base}h.{l}.mlp.dense_4h_to_h.weight",
        "blocks.{l}.mlp.down.bias": "{base}h.{l}.mlp.dense_4h_to_h.bias",
        "ln_final.weight": "{base}ln_f.weight",
        "ln_final.bias": "{base}ln_f.bias",
        "unembed.weight": "{head}lm_head.weight",
    },
    prefixes=(("transformer.", ""), ("", "")),
    refused={"apply_residual_connection_post_layernorm": (False, None)},
)
