"""Encoders for long texts: Longformer (Beltagy et al. 2020, arXiv 2004.05150) and BigBird (Zaheer et al. 2020, 2007.14062).

Both are BERT with an attention that leaves keys out: Longformer has a window, and global tokens, named in the call, with their
own weights; BigBird has blocks.
"""

from __future__ import annotations

from typing import Any

from ...config import SparseConfig
from .bert import (
    CONFIG,
    CONSTANTS,
    DEFAULTS,
    EMBEDDINGS,
    IGNORED_LM_HEAD,
    IGNORED_PREDICTIONS,
    LAYER,
    LAYERS,
    LM_HEAD,
    MLM_IF_PREDICTIONS,
    PREDICTIONS,
    REFUSED,
    ROBERTA_CONFIG,
    ROBERTA_CONSTANTS,
    ROBERTA_DEFAULTS,
    linear,
)
from .family import Family, HFConfig


def _windows(hf: HFConfig) -> tuple[int, ...]:
    """`attention_window`, the total width of the band, of each layer, as our `window`, which counts one side."""
    stated = hf["attention_window"]
    listed = stated if isinstance(stated, list) else [stated] * hf["num_hidden_layers"]
    return tuple(width // 2 + 1 for width in listed)


def _window_types(hf: HFConfig) -> tuple[str, ...]:
    return tuple(f"window {width}" for width in _windows(hf))


def _longformer_by_type(hf: HFConfig) -> dict[str, dict[str, Any]]:
    return {f"window {width}": {"window": width} for width in _windows(hf)}


LONGFORMER = Family(
    name="longformer",
    model_types=("longformer",),
    defaults={
        **ROBERTA_DEFAULTS,
        "max_position_embeddings": 4098,
        "type_vocab_size": 2,
        "attention_window": 512,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    constants={**ROBERTA_CONSTANTS, "mixer": "longformer", "mask": "longformer"},
    config={
        **ROBERTA_CONFIG,
        "window": lambda hf: max(_windows(hf)),
        "layer_types": _window_types,
        "by_type": _longformer_by_type,
    },
    weights={
        **EMBEDDINGS,
        **LAYERS,
        **linear("blocks.{l}.attn.q_global", LAYER + "attention.self.query_global"),
        **linear("blocks.{l}.attn.k_global", LAYER + "attention.self.key_global"),
        **linear("blocks.{l}.attn.v_global", LAYER + "attention.self.value_global"),
        **LM_HEAD,
    },
    prefixes=(("longformer.", ""), ("", "")),
    refused=REFUSED,
    ignored=IGNORED_LM_HEAD,
)


def _is_sparse(hf: HFConfig) -> bool:
    return hf["attention_type"] == "block_sparse"


BIG_BIRD = Family(
    name="big_bird",
    model_types=("big_bird",),
    defaults={
        **DEFAULTS,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 4096,
        "attention_type": "block_sparse",
        "use_bias": True,
        "rescale_embeddings": False,
        "block_size": 64,
        "num_random_blocks": 3,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    constants={ours: value for ours, value in CONSTANTS.items() if ours != "qkv_bias"},
    config={
        **CONFIG,
        "head": MLM_IF_PREDICTIONS,
        "qkv_bias": "use_bias",
        "embed_scale": lambda hf: hf["hidden_size"] ** 0.5 if hf["rescale_embeddings"] else 1.0,
        "mask": lambda hf: "big_bird" if _is_sparse(hf) else "full",
        "score_terms": lambda hf: ("key_counts",) if _is_sparse(hf) else (),
        "sparse": lambda hf: SparseConfig(block=hf["block_size"], n_random=hf["num_random_blocks"]) if _is_sparse(hf) else None,
    },
    weights={**EMBEDDINGS, **LAYERS, **PREDICTIONS},
    prefixes=(("bert.", ""), ("", "")),
    refused=REFUSED,
    ignored=IGNORED_PREDICTIONS,
)
