"""The size of every axis that a hook's tensor can have, from the config of the hook's layer."""

from __future__ import annotations

from models import TransformerConfig


def axis_sizes(cfg: TransformerConfig, batch: int, pos: int) -> dict[str, int]:
    """By the words of `models.hooks.AXES`."""
    sizes = {"batch": batch, "pos": pos, "query": pos, "key": pos, "1": 1, "map": 2 * cfg.n_heads}
    sizes |= {"head": cfg.n_heads, "kv_head": cfg.n_kv_heads, "d_head": cfg.d_head, "d_value": cfg.d_value}
    sizes |= {"d_decay": cfg.d_head if cfg.mixer == "kimi_delta" else 1, "d_state": cfg.d_value + (cfg.mixer == "linear")}
    if cfg.latent is not None:
        sizes |= {"q_rank": cfg.latent.q_rank, "kv_rank": cfg.latent.kv_rank}
    if cfg.altup is not None:
        sizes |= {"stream": cfg.altup.n_streams}
    if cfg.sparse is not None:
        sizes |= {"block": -(-pos // cfg.sparse.block), "branch": 3}
    sizes |= {"selector": {"indexed_latent": 1, "native_sparse": cfg.n_kv_heads}.get(cfg.mixer, cfg.n_heads)}
    if (experts := cfg.experts) is not None:
        sizes |= {"expert": experts.n_experts, "d_expert": experts.d_expert, "d_shared": experts.d_shared}
    return sizes | {"d_model": cfg.d_model, "d_mlp": cfg.d_mlp, "d_layer_embed": cfg.d_layer_embed}
