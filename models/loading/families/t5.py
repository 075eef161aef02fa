"""T5 (Raffel et al. 2020, arXiv 1910.10683), T5 v1.1 and Flan-T5, mT5 (2010.11934) and umT5 (2304.09151).

Encoder-decoders with RMSNorm, no biases, and no 1 / sqrt(d_head) on scores. Positions are a bias on the scores by distance, one
table per stack (umT5: per layer); cross-attention has none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...config import RelativeConfig
from .family import TENSORS, Family, HFConfig, Rule
from .rules import activation_named, eos_token_ids
from .seq2seq import encoder_rule, for_both

CONSTANTS: dict[str, Any] = {
    "block": "pre",
    "norm": "rms_norm",
    "positions": "none",
    "score_terms": ("t5_bias",),
    "attn_scale": 1.0,
}

DEFAULTS = {
    "vocab_size": 32_128,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_decoder_layers": None,
    "num_heads": 8,
    # What the models were trained with; nothing in them limits the context.
    "n_positions": 512,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "decoder_start_token_id": None,
}

HEAD = "lm_head.weight"


def _is_gated(hf: HFConfig) -> bool:
    return str(hf["feed_forward_proj"]).startswith("gated-")


def _activation(hf: HFConfig) -> str:
    """The name after "gated-"; "gated-gelu" has always meant the tanh form."""
    name = str(hf["feed_forward_proj"]).removeprefix("gated-")
    return "gelu_tanh" if _is_gated(hf) and name == "gelu" else activation_named(name)


def _scales_logits(hf: HFConfig) -> bool:
    """Newer files say so; older ones mean it by tying the embeddings, which newer ones always claim to do."""
    stated = hf.get("scale_decoder_outputs")
    return bool(hf["tie_word_embeddings"]) if stated is None else stated


def _ties(hf: HFConfig) -> bool:
    """Whether the head is the embedding: it is where the logits are scaled, else where the checkpoint has no other."""
    return _scales_logits(hf) or (hf["tie_word_embeddings"] and HEAD not in hf[TENSORS])


def _head_is_absent(hf: HFConfig) -> bool:
    return hf["tie_word_embeddings"] and HEAD not in hf[TENSORS]


def _relative(hf: HFConfig, shared: bool = True) -> RelativeConfig:
    buckets, distance = hf["relative_attention_num_buckets"], hf["relative_attention_max_distance"]
    return RelativeConfig(n_buckets=buckets, max_distance=distance, shared=shared)


STACK: dict[str, Rule] = {
    "d_model": "d_model",
    "n_heads": "num_heads",
    "d_head": "d_kv",
    "d_vocab": "vocab_size",
    "n_ctx": "n_positions",
    "d_mlp": "d_ff",
    "norm_eps": "layer_norm_epsilon",
    "activation": _activation,
    "gated_mlp": _is_gated,
    "relative": _relative,
}
"""What encoder and decoder have in common."""


def _config(stack: dict[str, Rule]) -> dict[str, Rule]:
    return {
        **stack,
        "n_layers": lambda hf: hf["num_decoder_layers"] or hf["num_layers"],
        "encoder": encoder_rule(CONSTANTS, {**stack, "n_layers": "num_layers"}),
        "logit_scale": lambda hf: hf["d_model"] ** -0.5 if _scales_logits(hf) else 1.0,
        "tie_embeddings": _ties,
        "eos_token_ids": eos_token_ids,
        "start_token_id": lambda hf: hf["pad_token_id"] if hf["decoder_start_token_id"] is None else hf["decoder_start_token_id"],
    }


_BLOCK = "{stack}.block.{l}.layer"
_BOTH = {
    "{stack}.embed.weight": "shared.weight",
    "{stack}.blocks.{l}.ln1.weight": f"{_BLOCK}.0.layer_norm.weight",
    **{f"{{stack}}.blocks.{{l}}.attn.{each}.weight": f"{_BLOCK}.0.SelfAttention.{each}.weight" for each in "qkvo"},
    "{stack}.blocks.{l}.attn.terms.t5_bias.table": f"{_BLOCK}.0.SelfAttention.relative_attention_bias.weight",
    "{stack}.ln_final.weight": "{stack}.final_layer_norm.weight",
}
_CROSS = {
    "decoder.blocks.{l}.ln_cross.weight": "decoder.block.{l}.layer.1.layer_norm.weight",
    **{
        f"decoder.blocks.{{l}}.cross_attn.{each}.weight": f"decoder.block.{{l}}.layer.1.EncDecAttention.{each}.weight"
        for each in "qkvo"
    },
}


def _mlp() -> dict[str, str]:
    """The MLP is a block's last sub-layer: the second of the encoder's, the third of the decoder's."""
    weights: dict[str, str] = {}
    for stack, place in (("encoder", 1), ("decoder", 2)):
        ours, theirs = f"{stack}.blocks.{{l}}", f"{stack}.block.{{l}}.layer.{place}"
        weights |= {f"{ours}.ln2.weight": f"{theirs}.layer_norm.weight"}
        for part, name in (("up", "wi"), ("gate", "wi_0"), ("down", "wo")):
            weights[f"{ours}.mlp.{part}.weight"] = f"{theirs}.DenseReluDense.{name}.weight"
        weights[f"{ours}.mlp.up.weight"] += f"|{theirs}.DenseReluDense.wi_1.weight"
    return weights


_WEIGHTS = {**for_both(_BOTH), **_CROSS, **_mlp(), "decoder.unembed.weight": HEAD}

_ENCODER_ONLY = Family(
    name="t5_encoder",
    model_types=(),
    defaults=DEFAULTS,
    constants={**CONSTANTS, "causal": False, "head": "none"},
    config={**STACK, "n_layers": "num_layers"},
    weights={ours.removeprefix("encoder."): theirs for ours, theirs in _WEIGHTS.items() if ours.startswith("encoder.")},
    ignored=(r"^encoder\.embed_tokens\.weight$",),
)

T5 = Family(
    name="t5",
    model_types=("t5",),
    defaults=DEFAULTS,
    constants={**CONSTANTS, "cross_attention": True, "share_embeddings": True},
    config=_config(STACK),
    weights=_WEIGHTS,
    ignored=(r"^(encoder|decoder)\.embed_tokens\.weight$", r"EncDecAttention\.relative_attention_bias\.weight$"),
    encoder_only=_ENCODER_ONLY,
)

MT5 = replace(
    T5,
    name="mt5",
    model_types=("mt5",),
    defaults={
        **DEFAULTS,
        "d_ff": 1024,
        "num_layers": 8,
        "num_heads": 6,
        "vocab_size": 250_112,
        "feed_forward_proj": "gated-gelu",
    },
    config={**_config(STACK), "logit_scale": lambda hf: 1.0, "tie_embeddings": _head_is_absent},
)

_UNSHARED: dict[str, Rule] = {**STACK, "relative": lambda hf: _relative(hf, shared=False)}

UMT5 = replace(
    MT5,
    name="umt5",
    model_types=("umt5",),
    config=_config(_UNSHARED),
    encoder_only=replace(_ENCODER_ONLY, name="umt5_encoder", config={**_UNSHARED, "n_layers": "num_layers"}),
)
