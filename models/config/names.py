"""The names that a config may choose from. `models.register` adds a user's own."""

from __future__ import annotations

NAMES: dict[str, list[str]] = {
    "block": ["pre", "post", "sandwich", "parallel", "parallel_shared", "output_norm"],
    "norm": ["layer_norm", "rms_norm", "rms_norm_offset", "none"],
    "positions": ["learned", "sinusoidal", "rotary", "none"],
    "sinusoidal_layout": ["interleaved", "half"],
    "mixer": ["attention"],
    "mask": ["full", "sliding"],
    "qk_norm": ["none", "per_head", "own_per_head", "full_width", "l2"],
    "qk_norm_place": ["before", "after"],
    "score_terms": [],
    "normaliser": ["softmax"],
    "out_steps": [],
    "activation": ["relu", "gelu", "gelu_tanh", "silu"],
    "mlp": ["plain", "gated", "experts"],
    "head": ["lm", "mlm", "none"],
}
"""By field of `TransformerConfig`; the code that each name stands for is in the registry of the same purpose."""

