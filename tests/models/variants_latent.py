"""Tiny models with latent, indexed, block-chosen and native sparse attention; all choose fewer keys than there are tokens."""

from __future__ import annotations

from models.config import LatentConfig, RotaryConfig, SparseConfig

_LLAMA = {"positions": "rotary", "norm": "rms_norm", "gated_mlp": True, "activation": "silu"}
_ROTARY = RotaryConfig(dim=2, layout="interleaved")
_LATENT = _LLAMA | {"mixer": "latent", "d_value": 6, "rotary": _ROTARY, "latent": LatentConfig(kv_rank=10, d_shared=2, q_rank=12)}
_INDEX = SparseConfig(n_selected=3, index_heads=8, d_index=6)

VARIANTS: dict[str, dict] = {
    "latent": _LATENT,
    "latent_full_queries": _LATENT
    | {"latent": LatentConfig(kv_rank=10, d_shared=2, norm_eps=1e-2), "out_bias": True, "qkv_bias": True, "attn_softcap": 4.0},
    "latent_no_positions": _LATENT | {"positions": "none", "rotary": None},
    "indexed_latent": _LATENT | {"mixer": "indexed_latent", "sparse": _INDEX, "attn_softcap": 4.0},
    "indexed_latent_reused": _LATENT
    | {"mixer": "indexed_latent", "sparse": SparseConfig(n_selected=3, index_heads=8, d_index=6, index_layout="interleaved")}
    | {"layer_types": ("full", "reuse", "full"), "by_type": {"reuse": {"sparse": SparseConfig(n_selected=3, reuse=True)}}},
    "block_mixture": _LLAMA | {"mixer": "block_mixture", "n_kv_heads": 2, "sparse": SparseConfig(n_selected=2, block=2)},
    "block_mixture_window": {"mixer": "block_mixture", "sparse": SparseConfig(n_selected=2, block=3), "window": 7},
    "native_sparse": _LLAMA
    | {"mixer": "native_sparse", "n_kv_heads": 2, "sparse": SparseConfig(n_selected=3, block=2, window=3)},
}
