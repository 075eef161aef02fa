"""OPT (Zhang et al. 2022, arXiv 2205.01068): a ReLU decoder whose table of positions starts two rows in."""

from __future__ import annotations

from ...errors import ConfigError
from ..fill import Weight
from .family import Family, HFConfig
from .rules import activation_named, d_head, eos_token_ids

OFFSET = 2


def _d_model(hf: HFConfig) -> int:
    """`hidden_size`. Raises ConfigError where embeddings have another width, as in OPT 350M."""
    if hf["word_embed_proj_dim"] not in (None, hf["hidden_size"]):
        raise ConfigError(
            f"word_embed_proj_dim={hf['word_embed_proj_dim']} differs from hidden_size={hf['hidden_size']}; embeddings narrower "
            "than the stream are not supported for opt checkpoints."
        )
    return hf["hidden_size"]


def _final_norm(hf: HFConfig) -> bool:
    return hf["do_layer_norm_before"] and not hf["_remove_final_layer_norm"]


OPT = Family(
    name="opt",
    model_types=("opt",),
    defaults={
        "vocab_size": 50_272,
        "max_position_embeddings": 2048,
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "word_embed_proj_dim": None,
        "activation_function": "relu",
        "enable_bias": True,
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": 2,
    },
    constants={"norm": "layer_norm", "norm_eps": 1e-5, "positions": "learned", "position_offset": OFFSET},
    config={
        "n_layers": "num_hidden_layers",
        "d_model": _d_model,
        "n_heads": "num_attention_heads",
        "d_head": d_head,
        "d_vocab": "vocab_size",
        "n_ctx": "max_position_embeddings",
        "d_mlp": "ffn_dim",
        "block": lambda hf: "pre" if hf["do_layer_norm_before"] else "post",
        "final_norm": _final_norm,
        "activation": lambda hf: activation_named(hf["activation_function"]),
        "qkv_bias": "enable_bias",
        "out_bias": "enable_bias",
        "mlp_bias": "enable_bias",
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}embed_tokens.weight",
        "pos_embed.weight": Weight("{base}embed_positions.weight", "leading_rows"),
        "blocks.{l}.ln1.weight": "{base}layers.{l}.self_attn_layer_norm.weight",
        "blocks.{l}.ln1.bias": "{base}layers.{l}.self_attn_layer_norm.bias",
        "blocks.{l}.attn.q.weight": "{base}layers.{l}.self_attn.q_proj.weight",
        "blocks.{l}.attn.q.bias": "{base}layers.{l}.self_attn.q_proj.bias",
        "blocks.{l}.attn.k.weight": "{base}layers.{l}.self_attn.k_proj.weight",
        "blocks.{l}.attn.k.bias": "{base}layers.{l}.self_attn.k_proj.bias",
        "blocks.{l}.attn.v.weight": "{base}layers.{l}.self_attn.v_proj.weight",
        "blocks.{l}.attn.v.bias": "{base}layers.{l}.self_attn.v_proj.bias",
        "blocks.{l}.attn.o.weight": "{base}layers.{l}.self_attn.out_proj.weight",
        "blocks.{l}.attn.o.bias": "{base}layers.{l}.self_attn.out_proj.bias",
        "blocks.{l}.ln2.weight": "{base}layers.{l}.final_layer_norm.weight",
        "blocks.{l}.ln2.bias": "{base}layers.{l}.final_layer_norm.bias",
        "blocks.{l}.mlp.up.weight": "{base}layers.{l}.fc1.weight",
        "blocks.{l}.mlp.up.bias": "{base}layers.{l}.fc1.bias",
        "blocks.{l}.mlp.down.weight": "{base}layers.{l}.fc2.weight",
        "blocks.{l}.mlp.down.bias": "{base}layers.{l}.fc2.bias",
        "ln_final.weight": "{base}final_layer_norm.weight",
        "ln_final.bias": "{base}final_layer_norm.bias",
        "unembed.weight": "{head}lm_head.weight",
    },
    prefixes=(("model.decoder.", ""), ("decoder.", "")),
    refused={"layer_norm_elementwise_affine": (True, None)},
)
