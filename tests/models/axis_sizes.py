"""The size of every axis that a hook's tensor can have, from the config of the hook's layer."""

from __future__ import annotations

from models import TransformerConfig


def axis_sizes(cfg: TransformerConfig, batch: int, pos: int) -> dict[str, int]:
    """By the words of `models.hooks.AXES`."""
    sizes = {"batch": batch, "pos": pos, "query": pos, "key": pos, "1": 1}
    sizes |= {"head": cfg.n_heads, "kv_head": cfg.n_kv_heads, "d_head": cfg.d_head, "d_value": cfg.d_value}
    return sizes | {"d_model": cfg.d_model, "d_mlp": cfg.d_mlp}
