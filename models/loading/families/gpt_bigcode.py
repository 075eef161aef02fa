"""GPT-BigCode (SantaCoder, Ben Allal et al. 2023, arXiv 2301.03988; StarCoder): GPT-2 with one key head for all queries."""

from __future__ import annotations

from ..fill import Weight
from .family import Family
from .gpt2 import GPT2

GPT_BIGCODE = Family(
    name="gpt_bigcode",
    model_types=("gpt_bigcode",),
    defaults={**GPT2.defaults, "activation_function": "gelu_pytorch_tanh", "multi_query": True},
    constants=GPT2.constants,
    config={**GPT2.config, "n_kv_heads": lambda hf: 1 if hf["multi_query"] else hf["n_head"]},
    weights={
        **GPT2.weights,
        "blocks.{l}.attn.q.weight": Weight("{base}h.{l}.attn.c_attn.weight", "heads_q"),
        "blocks.{l}.attn.q.bias": Weight("{base}h.{l}.attn.c_attn.bias", "heads_q"),
        "blocks.{l}.attn.k.weight": Weight("{base}h.{l}.attn.c_attn.weight", "heads_k"),
        "blocks.{l}.attn.k.bias": Weight("{base}h.{l}.attn.c_attn.bias", "heads_k"),
        "blocks.{l}.attn.v.weight": Weight("{base}h.{l}.attn.c_attn.weight", "heads_v"),
        "blocks.{l}.attn.v.bias": Weight("{base}h.{l}.attn.c_attn.bias", "heads_v"),
        # GPT-2 stores these [in, out]; here they are ordinary linear layers.
        "blocks.{l}.attn.o.weight": "{base}h.{l}.attn.c_proj.weight",
        "blocks.{l}.mlp.up.weight": "{base}h.{l}.mlp.c_fc.weight",
        "blocks.{l}.mlp.down.weight": "{base}h.{l}.mlp.c_proj.weight",
    },
    prefixes=GPT2.prefixes,
    refused={"add_cross_attention": (False, None)},
    ignored=GPT2.ignored,
)
