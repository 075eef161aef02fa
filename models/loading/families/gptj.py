"""GPT-J (Wang & Komatsuzaki 2021): parallel blocks with one norm, rotation of interleaved pairs in part of each head."""

from __future__ import annotations

from ...config import RotaryConfig
from .family import Family
from .rules import activation_named, eos_token_ids

GPTJ = Family(
    name="gptj",
    model_types=("gptj",),
    defaults={
        "vocab_size": 50_400,
        "n_positions": 2048,
        "rotary_dim": 64,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 50_256,
        "eos_token_id": 50_256,
    },
    constants={
        "block": "parallel_shared",
        "norm": "layer_norm",
        "positions": "rotary",
        "mlp_bias": True,
        "unembed_bias": True,
    },
    config={
        "n_layers": "n_layer",
        "d_model": "n_embd",
        "n_heads": "n_head",
        "d_head": lambda hf: hf["n_embd"] // hf["n_head"],
        "d_vocab": "vocab_size",
        "n_ctx": "n_positions",
        "d_mlp": lambda hf: hf["n_inner"] or 4 * hf["n_embd"],
        "norm_eps": "layer_norm_epsilon",
        "rotary": lambda hf: RotaryConfig(dim=hf["rotary_dim"], layout="interleaved"),
        "activation": lambda hf: activation_named(hf["activation_function"]),
        "tie_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
    },
    weights={
        "embed.weight": "{base}wte.weight",
        "blocks.{l}.ln1.weight": "{base}h.{l}.ln_1.weight",
        "blocks.{l}.ln1.bias": "{base}h.{l}.ln_1.bias",
        "blocks.{l}.attn.q.weight": "{base}h.{l}.attn.q_proj.weight",
        "blocks.{l}.attn.k.weight": "{base}h.{l}.attn.k_proj.weight",
        "blocks.{l}.attn.v.weight": "{base}h.{l}.attn.v_proj.weight",
        "blocks.{l}.attn.o.weight": "{base}h.{l}.attn.out_proj.weight",
        "blocks.{l}.mlp.up.weight": "{base}h.{l}.mlp.fc_in.weight",
        "blocks.{l}.mlp.up.bias": "{base}h.{l}.mlp.fc_in.bias",
        "blocks.{l}.mlp.down.weight": "{base}h.{l}.mlp.fc_out.weight",
        "blocks.{l}.mlp.down.bias": "{base}h.{l}.mlp.fc_out.bias",
        "ln_final.weight": "{base}ln_f.weight",
        "ln_final.bias": "{base}ln_f.bias",
        "unembed.weight": "{head}lm_head.weight",
        "unembed.bias": "{head}lm_head.bias",
    },
    prefixes=(("transformer.", ""), ("", "")),
    ignored=(r"\bh\.\d+\.attn\.(bias|masked_bias)$",),
)
