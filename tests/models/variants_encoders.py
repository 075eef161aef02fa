"""Tiny encoders of every family: post-norm, disentangled, alternating windows, global tokens, sparse blocks."""

from __future__ import annotations

from typing import Any

from models.config import RelativeConfig, RotaryConfig, SparseConfig

_BIASES = {"qkv_bias": True, "out_bias": True, "mlp_bias": True, "unembed_bias": True}
_BERT: dict[str, Any] = {
    **_BIASES,
    "block": "post",
    "final_norm": False,
    "embed_norm": True,
    "n_token_types": 2,
    "causal": False,
    "head": "mlm",
    "activation": "gelu",
}
_DEBERTA = _BERT | {"mixer": "disentangled", "n_token_types": 0, "positions": "none"}

VARIANTS: dict[str, dict[str, Any]] = {
    "bert_tied": _BERT | {"tie_embeddings": True, "head_activation": "silu", "position_offset": 1},
    "bare_encoder": _BERT | {"head": "none", "unembed_bias": False},
    "deberta_v1": _DEBERTA | {"relative": RelativeConfig(terms=("c2p", "p2c"), n_buckets=0, max_distance=4, key_bias=False)},
    "deberta_v3": _DEBERTA
    | {
        "relative": RelativeConfig(terms=("c2p", "p2c"), n_buckets=4, max_distance=8, share_weights=True, norm=True),
        "attn_scale": 0.2,
    },
    "deberta_talking": _DEBERTA
    | {
        "mixer": "talking_disentangled",
        "relative": RelativeConfig(terms=("c2p", "p2c"), n_buckets=0, max_distance=12, key_bias=False),
    },
    "deberta_c2p": _BERT | {"mixer": "disentangled", "relative": RelativeConfig(terms=("c2p",), n_buckets=0, max_distance=20)},
    "modernbert": {
        "causal": False,
        "embed_norm": True,
        "norm_bias": False,
        "positions": "rotary",
        "gated_mlp": True,
        "head": "mlm",
        "window": 3,
        "layer_types": ("first", "sliding", "full"),
        "by_type": {"first": {"attn_norm": False}, "sliding": {"rotary": RotaryConfig(base=50.0)}},
    },
    "longformer": _BERT
    | {
        "mixer": "longformer",
        "mask": "longformer",
        "window": 3,
        "layer_types": ("longformer", "narrow", "longformer"),
        "by_type": {"narrow": {"window": 2}},
        "sparse": SparseConfig(n_global=2),
    },
    "big_bird": _BERT | {"mask": "big_bird", "score_terms": ("key_counts",), "sparse": SparseConfig(block=1, n_random=1)},
    "big_bird_random": _BERT
    | {"mask": "big_bird", "score_terms": ("key_counts",), "sparse": SparseConfig(block=1, n_random=1, seed=3)},
}
