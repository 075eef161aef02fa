"""BART (Lewis et al. 2020, arXiv 1910.13461) and Marian (Junczys-Dowmunt et al. 2018, arXiv 1804.00344).

Post-norm encoder-decoders. BART has learned positions, two rows in, and a norm over the embeddings; Marian has sinusoids, all
sines first. Both add a bias to the logits, which some checkpoints lack.
"""

from __future__ import annotations

from typing import Any

from ..fill import Weight
from .family import TENSORS, Family, HFConfig, Rule
from .rules import activation_named, eos_token_ids
from .seq2seq import encoder_rule, for_both

CONSTANTS: dict[str, Any] = {
    "block": "post",
    "norm": "layer_norm",
    "final_norm": False,
    "qkv_bias": True,
    "out_bias": True,
    "mlp_bias": True,
}
BART_CONSTANTS = {**CONSTANTS, "positions": "learned", "position_offset": 2, "embed_norm": True}
MARIAN_CONSTANTS = {**CONSTANTS, "positions": "sinusoidal", "sinusoidal_layout": "half"}

DEFAULTS = {
    "vocab_size": 50_265,
    "max_position_embeddings": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "d_model": 1024,
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}


def _stack(name: str) -> dict[str, Rule]:
    """The rules of the encoder or the decoder."""
    heads = f"{name}_attention_heads"
    return {
        "n_layers": f"{name}_layers",
        "d_model": "d_model",
        "n_heads": heads,
        "d_head": lambda hf: hf["d_model"] // hf[heads],
        "d_vocab": "vocab_size",
        "n_ctx": "max_position_embeddings",
        "d_mlp": f"{name}_ffn_dim",
        "activation": lambda hf: activation_named(hf["activation_function"]),
        "embed_scale": lambda hf: hf["d_model"] ** 0.5 if hf["scale_embedding"] else 1.0,
    }


def _config(constants: dict[str, Any]) -> dict[str, Rule]:
    return {
        **_stack("decoder"),
        "encoder": encoder_rule(constants, _stack("encoder")),
        "tie_embeddings": "tie_word_embeddings",
        "unembed_bias": lambda hf: "final_logits_bias" in hf[TENSORS],
        "bos_token_id": "bos_token_id",
        "eos_token_ids": eos_token_ids,
        "start_token_id": "decoder_start_token_id",
    }


_LAYER = "{base}{stack}.layers.{l}"
_PARTS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
_BOTH = {
    "{stack}.embed.weight": "{base}shared.weight|{base}{stack}.embed_tokens.weight",
    **{
        f"{{stack}}.blocks.{{l}}.{ours}.{kind}": f"{_LAYER}.{theirs}.{kind}"
        for ours, theirs in (
            *((f"attn.{part}", f"self_attn.{name}") for part, name in _PARTS.items()),
            *(("ln1", "self_attn_layer_norm"), ("ln2", "final_layer_norm"), ("mlp.up", "fc1"), ("mlp.down", "fc2")),
        )
        for kind in ("weight", "bias")
    },
}
_CROSS = {
    f"decoder.blocks.{{l}}.{ours}.{kind}": f"{{base}}decoder.layers.{{l}}.{theirs}.{kind}"
    for ours, theirs in (
        *((f"cross_attn.{part}", f"encoder_attn.{name}") for part, name in _PARTS.items()),
        ("ln_cross", "encoder_attn_layer_norm"),
    )
    for kind in ("weight", "bias")
}
_EMBEDDING_NORM = for_both(
    {f"{{stack}}.embed_norm.{kind}": f"{{base}}{{stack}}.layernorm_embedding.{kind}" for kind in ("weight", "bias")}
)
_POSITIONS = {
    f"{stack}.pos_embed.weight": Weight(f"{{base}}{stack}.embed_positions.weight", "leading_rows")
    for stack in ("encoder", "decoder")
}
WEIGHTS: dict[str, str | Weight] = {
    **for_both(_BOTH),
    **_CROSS,
    "decoder.unembed.weight": "lm_head.weight",
    "decoder.unembed.bias": Weight("final_logits_bias", "only_row"),
}


def _vocabulary(hf: HFConfig) -> int:
    return hf["vocab_size"] if hf["share_encoder_decoder_embeddings"] else hf["decoder_vocab_size"] or hf["vocab_size"]


BART = Family(
    name="bart",
    model_types=("bart",),
    defaults=DEFAULTS,
    constants={**BART_CONSTANTS, "cross_attention": True, "share_embeddings": True},
    config=_config(BART_CONSTANTS),
    weights={**WEIGHTS, **_EMBEDDING_NORM, **_POSITIONS},
    prefixes=(("model.", ""), ("", "")),
    ignored=(r"(encoder|decoder)\.embed_tokens\.weight$", r"(encoder|decoder)\.version$"),
)

MARIAN = Family(
    name="marian",
    model_types=("marian",),
    defaults={
        **DEFAULTS,
        "vocab_size": 58_101,
        "decoder_vocab_size": None,
        "share_encoder_decoder_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": 0,
        "decoder_start_token_id": 58_100,
    },
    constants={**MARIAN_CONSTANTS, "cross_attention": True},
    config={**_config(MARIAN_CONSTANTS), "d_vocab": _vocabulary, "share_embeddings": "share_encoder_decoder_embeddings"},
    weights=WEIGHTS,
    prefixes=(("model.", ""), ("", "")),
    # The sinusoids are computed; older files hold them too.
    ignored=(r"(encoder|decoder)\.embed_(tokens|positions)\.weight$",),
)
