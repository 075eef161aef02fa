"""The names that a config may choose from. `models.register` adds a user's own."""

from __future__ import annotations

NAMES: dict[str, list[str]] = {
    "block": [
        "pre",
        "post",
        "sandwich",
        "sandwich_scaled",
        "parallel",
        "parallel_shared",
        "output_norm",
        "normed_stream",
        "altup",
    ],
    "norm": ["layer_norm", "rms_norm", "rms_norm_offset", "none"],
    "positions": ["learned", "sinusoidal", "rotary", "none"],
    "sinusoidal_layout": ["interleaved", "half"],
    "mixer": [
        "attention",
        "kv_store",
        "kv_reader",
        "latent",
        "indexed_latent",
        "block_mixture",
        "native_sparse",
        "disentangled",
        "talking_disentangled",
        "longformer",
        "linear",
        "retention",
        "mamba2",
        "gated_delta",
        "kimi_delta",
        "differential",
        "talking_heads",
    ],
    "mask": ["full", "sliding", "chunked", "longformer", "big_bird", "sink_window"],
    "qk_norm": ["none", "per_head", "own_per_head", "full_width", "l2"],
    "qk_norm_place": ["before", "after"],
    "score_terms": ["alibi", "t5_bias", "key_counts"],
    "normaliser": ["softmax", "sink_softmax", "sigmoid", "kernel_sum"],
    "out_steps": ["gated_norm", "gate", "head_norm", "differential_norm"],
    "activation": ["relu", "gelu", "gelu_tanh", "silu", "quick_gelu"],
    "mlp": ["plain", "gated", "sparse_gated", "experts"],
    "head": ["lm", "mlm", "none"],
}
"""By field of `TransformerConfig`; the code that each name stands for is in the registry of the same purpose."""

PART_NAMES: dict[str, list[str]] = {"router": ["softmax", "sigmoid"]}
"""The same by field of a nested config: the router of `ExpertsConfig`."""
