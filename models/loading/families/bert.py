"""BERT (Devlin et al. 2019, arXiv 1810.04805) and its closest relatives: RoBERTa (1907.11692) and DistilBERT (1910.01108).

Post-norm encoders with learned positions and a head for masked tokens. A checkpoint without that head gives the last states;
poolers and heads for other tasks are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from ..fill import Weight
from .family import TENSORS, Family, HFConfig, Rule
from .rules import activation, activation_named, d_head, eos_token_ids

CONSTANTS = {
    "block": "post",
    "norm": "layer_norm",
    "final_norm": False,
    "embed_norm": True,
    "positions": "learned",
    "causal": False,
    "qkv_bias": True,
    "out_bias": True,
    "mlp_bias": True,
    "unembed_bias": True,
}

DEFAULTS = {
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}

CONFIG: dict[str, Rule] = {
    "n_layers": "num_hidden_layers",
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "d_head": d_head,
    "d_vocab": "vocab_size",
    "n_ctx": "max_position_embeddings",
    "d_mlp": "intermediate_size",
    "norm_eps": "layer_norm_eps",
    "n_token_types": "type_vocab_size",
    "activation": activation,
    "tie_embeddings": "tie_word_embeddings",
    "bos_token_id": "bos_token_id",
    "eos_token_ids": eos_token_ids,
}

REFUSED = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
}

OTHER_HEADS = (r"^(\w+\.)?pooler\.", r"^(classifier|qa_outputs|score)\.", r"(^|\.)position_ids$")


def mlm_if(*tensors: str) -> Callable[[HFConfig], str]:
    """The rule for `head`: a checkpoint has one if it has one of these tensors; otherwise its model gives last states."""

    def head(hf: HFConfig) -> str:
        return "mlm" if not hf[TENSORS] or any(tensor in hf[TENSORS] for tensor in tensors) else "none"

    return head


def norm(ours: str, theirs: str) -> dict[str, str | Weight]:
    """The weights of a LayerNorm, whose names in the first BERT files are gamma and beta."""
    return {
        f"{ours}.weight": f"{theirs}.weight|{theirs}.gamma",
        f"{ours}.bias": f"{theirs}.bias|{theirs}.beta",
    }


def linear(ours: str, theirs: str) -> dict[str, str | Weight]:
    """Weight and bias of a linear layer."""
    return {f"{ours}.{part}": f"{theirs}.{part}" for part in ("weight", "bias")}


EMBEDDINGS: dict[str, str | Weight] = {
    "embed.weight": "{base}embeddings.word_embeddings.weight",
    "pos_embed.weight": Weight("{base}embeddings.position_embeddings.weight", "leading_rows"),
    "token_type_embed.weight": "{base}embeddings.token_type_embeddings.weight",
    **norm("embed_norm", "{base}embeddings.LayerNorm"),
}

LAYER = "{base}encoder.layer.{l}."

REST_OF_LAYER: dict[str, str | Weight] = {
    **linear("blocks.{l}.attn.o", LAYER + "attention.output.dense"),
    **norm("blocks.{l}.ln1", LAYER + "attention.output.LayerNorm"),
    **linear("blocks.{l}.mlp.up", LAYER + "intermediate.dense"),
    **linear("blocks.{l}.mlp.down", LAYER + "output.dense"),
    **norm("blocks.{l}.ln2", LAYER + "output.LayerNorm"),
}

LAYERS: dict[str, str | Weight] = {
    **linear("blocks.{l}.attn.q", LAYER + "attention.self.query"),
    **linear("blocks.{l}.attn.k", LAYER + "attention.self.key"),
    **linear("blocks.{l}.attn.v", LAYER + "attention.self.value"),
    **REST_OF_LAYER,
}

PREDICTIONS: dict[str, str | Weight] = {
    **linear("head_dense", "cls.predictions.transform.dense"),
    **norm("head_norm", "cls.predictions.transform.LayerNorm"),
    "unembed.weight": "cls.predictions.decoder.weight",
    "unembed.bias": "cls.predictions.decoder.bias|cls.predictions.bias",
}
MLM_IF_PREDICTIONS = mlm_if("cls.predictions.transform.dense.weight")
IGNORED_PREDICTIONS = (*OTHER_HEADS, r"^cls\.predictions\.(decoder\.)?bias$", r"^cls\.seq_relationship\.")

LM_HEAD: dict[str, str | Weight] = {
    **linear("head_dense", "lm_head.dense"),
    **norm("head_norm", "lm_head.layer_norm"),
    "unembed.weight": "lm_head.decoder.weight",
    "unembed.bias": "lm_head.decoder.bias|lm_head.bias",
}
IGNORED_LM_HEAD = (*OTHER_HEADS, r"^lm_head\.(decoder\.)?bias$")

BERT = Family(
    name="bert",
    model_types=("bert",),
    defaults=DEFAULTS,
    constants=CONSTANTS,
    config={**CONFIG, "head": MLM_IF_PREDICTIONS},
    weights={**EMBEDDINGS, **LAYERS, **PREDICTIONS},
    prefixes=(("bert.", ""), ("", "")),
    refused=REFUSED,
    ignored=IGNORED_PREDICTIONS,
)


def position_offset(hf: HFConfig) -> int:
    """Positions start after that of padding."""
    return hf["pad_token_id"] + 1


ROBERTA_CONFIG: dict[str, Rule] = {
    **CONFIG,
    "n_ctx": lambda hf: hf["max_position_embeddings"] - position_offset(hf),
    "position_offset": position_offset,
    "head": mlm_if("lm_head.dense.weight"),
}
ROBERTA_CONSTANTS = {**CONSTANTS, "head_activation": "gelu"}
ROBERTA_DEFAULTS = {**DEFAULTS, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}

ROBERTA = Family(
    name="roberta",
    model_types=("roberta", "xlm-roberta", "camembert"),
    defaults={**ROBERTA_DEFAULTS, "bos_token_id": 0, "eos_token_id": 2},
    constants=ROBERTA_CONSTANTS,
    config=ROBERTA_CONFIG,
    weights={**EMBEDDINGS, **LAYERS, **LM_HEAD},
    prefixes=(("roberta.", ""), ("", "")),
    refused=REFUSED,
    ignored=IGNORED_LM_HEAD,
)

DISTIL_LAYER = "{base}transformer.layer.{l}."

DISTILBERT = Family(
    name="distilbert",
    model_types=("distilbert",),
    defaults={**DEFAULTS, "activation": "gelu"},
    constants={**CONSTANTS, "norm_eps": 1e-12},
    config={
        **{ours: rule for ours, rule in CONFIG.items() if ours not in ("norm_eps", "n_token_types")},
        "n_layers": "n_layers",
        "d_model": "dim",
        "n_heads": "n_heads",
        "d_head": lambda hf: d_head({"hidden_size": hf["dim"], "num_attention_heads": hf["n_heads"]}),
        "d_mlp": "hidden_dim",
        "head": mlm_if("vocab_transform.weight"),
        "activation": lambda hf: activation_named(hf["activation"]),
    },
    weights={
        **{ours: theirs for ours, theirs in EMBEDDINGS.items() if ours != "token_type_embed.weight"},
        **linear("blocks.{l}.attn.q", DISTIL_LAYER + "attention.q_lin"),
        **linear("blocks.{l}.attn.k", DISTIL_LAYER + "attention.k_lin"),
        **linear("blocks.{l}.attn.v", DISTIL_LAYER + "attention.v_lin"),
        **linear("blocks.{l}.attn.o", DISTIL_LAYER + "attention.out_lin"),
        **norm("blocks.{l}.ln1", DISTIL_LAYER + "sa_layer_norm"),
        **linear("blocks.{l}.mlp.up", DISTIL_LAYER + "ffn.lin1"),
        **linear("blocks.{l}.mlp.down", DISTIL_LAYER + "ffn.lin2"),
        **norm("blocks.{l}.ln2", DISTIL_LAYER + "output_layer_norm"),
        **linear("head_dense", "vocab_transform"),
        **norm("head_norm", "vocab_layer_norm"),
        **linear("unembed", "vocab_projector"),
    },
    prefixes=(("distilbert.", ""), ("", "")),
    ignored=(*OTHER_HEADS, r"^pre_classifier\."),
)
