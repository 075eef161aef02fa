"""Llama 1-3 (Touvron et al. 2023, arXiv 2302.13971) and its relatives: SmolLM2, Mistral, Qwen2, Qwen3.

Pre-norm with RMSNorm, rotary positions, grouped queries and a gated MLP; they differ in biases, windows and QK-norm.
"""

from __future__ import annotations

from .family import Family, HFConfig, Rule
from .rotary import rotary, scaled_n_ctx
from .rules import activation, d_head, eos_token_ids, ignored_buffers, listed_layer_types, n_kv_heads

CONSTANTS = {"block": "pre", "norm": "rms_norm", "positions": "rotary", "gated_mlp": True}

DEFAULTS = {
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

CONFIG: dict[str, Rule] = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": n_kv_heads,
    "d_head": d_head,
    "d_vocab": "vocab_size",
    "n_ctx": scaled_n_ctx,
    "d_mlp": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "rotary": rotary,
    "activation": activation,
    "qkv_bias": "attention_bias",
    "out_bias": "attention_bias",
    "tie_embeddings": "tie_word_embeddings",
    "bos_token_id": "bos_token_id",
    "eos_token_ids": eos_token_ids,
}

WEIGHTS = {
    "embed.weight": "{base}embed_tokens.weight",
    "blocks.{l}.ln1.weight": "{base}layers.{l}.input_layernorm.weight",
    "blocks.{l}.attn.q.weight": "{base}layers.{l}.self_attn.q_proj.weight",
    "blocks.{l}.attn.q.bias": "{base}layers.{l}.self_attn.q_proj.bias",
    "blocks.{l}.attn.k.weight": "{base}layers.{l}.self_attn.k_proj.weight",
    "blocks.{l}.attn.k.bias": "{base}layers.{l}.self_attn.k_proj.bias",
    "blocks.{l}.attn.v.weight": "{base}layers.{l}.self_attn.v_proj.weight",
    "blocks.{l}.attn.v.bias": "{base}layers.{l}.self_attn.v_proj.bias",
    "blocks.{l}.attn.o.weight": "{base}layers.{l}.self_attn.o_proj.weight",
    "blocks.{l}.attn.o.bias": "{base}layers.{l}.self_attn.o_proj.bias",
    "blocks.{l}.ln2.weight": "{base}layers.{l}.post_attention_layernorm.weight",
    "blocks.{l}.mlp.gate.weight": "{base}layers.{l}.mlp.gate_proj.weight",
    "blocks.{l}.mlp.gate.bias": "{base}layers.{l}.mlp.gate_proj.bias",
    "blocks.{l}.mlp.up.weight": "{base}layers.{l}.mlp.up_proj.weight",
    "blocks.{l}.mlp.up.bias": "{base}layers.{l}.mlp.up_proj.bias",
    "blocks.{l}.mlp.down.weight": "{base}layers.{l}.mlp.down_proj.weight",
    "blocks.{l}.mlp.down.bias": "{base}layers.{l}.mlp.down_proj.bias",
    "ln_final.weight": "{base}norm.weight",
    "unembed.weight": "{head}lm_head.weight",
}

HEAD_NORMS = {
    "blocks.{l}.attn.q_norm.weight": "{base}layers.{l}.self_attn.q_norm.weight",
    "blocks.{l}.attn.k_norm.weight": "{base}layers.{l}.self_attn.k_norm.weight",
}

PREFIXES = (("model.", ""), ("", ""))
IGNORED = ignored_buffers("rotary_emb.inv_freq")


def _qwen_window(hf: HFConfig) -> int | None:
    return hf["sliding_window"] if hf["use_sliding_window"] else None


def _qwen_layer_types(hf: HFConfig) -> tuple[str, ...]:
    """The layers from `max_window_layers` on slide, unless `layer_types` says otherwise; none do where there is no window."""
    if _qwen_window(hf) is None:
        return ("full",) * hf["num_hidden_layers"]
    last = ("sliding" if layer >= hf["max_window_layers"] else "full" for layer in range(hf["num_hidden_layers"]))
    return listed_layer_types(hf) or tuple(last)


QWEN_WINDOW: dict[str, Rule] = {"window": _qwen_window, "layer_types": _qwen_layer_types}
QWEN_DEFAULTS = {
    **DEFAULTS,
    "max_position_embeddings": 32_768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "bos_token_id": None,
    "eos_token_id": None,
}

LLAMA = Family(
    name="llama",
    model_types=("llama",),
    defaults=DEFAULTS,
    constants=CONSTANTS,
    config={**CONFIG, "mlp_bias": "mlp_bias"},
    weights=WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)

MISTRAL = Family(
    name="mistral",
    model_types=("mistral",),
    defaults={**DEFAULTS, "num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4096},
    constants=CONSTANTS,
    config={**CONFIG, "window": "sliding_window", "layer_types": listed_layer_types},
    weights=WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)

QWEN2 = Family(
    name="qwen2",
    model_types=("qwen2",),
    defaults=QWEN_DEFAULTS,
    constants={**CONSTANTS, "qkv_bias": True, "out_bias": False},
    config={**{ours: rule for ours, rule in CONFIG.items() if ours not in ("qkv_bias", "out_bias")}, **QWEN_WINDOW},
    weights=WEIGHTS,
    prefixes=PREFIXES,
    ignored=IGNORED,
)

QWEN3 = Family(
    name="qwen3",
    model_types=("qwen3",),
    defaults={**QWEN_DEFAULTS, "head_dim": 128},
    constants={**CONSTANTS, "qk_norm": "per_head"},
    config={**CONFIG, **QWEN_WINDOW},
    weights={**WEIGHTS, **HEAD_NORMS},
    prefixes=PREFIXES,
    ignored=IGNORED,
)
