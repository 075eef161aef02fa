"""Grouped-query attention as the equal multi-head model, for comparison with tools that know no groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch import nn

from .config import TransformerConfig
from .errors import HookError

if TYPE_CHECKING:
    from .transformer import HookedTransformer

PLAIN_KEYS = {"attention", "kv_store", "kv_reader", "differential", "talking_heads", "linear", "retention"}
"""Mixers with a key and a value projection per KV head."""

PER_KV_HEAD = re.compile(r"\.attn\.(conv_)?[kv]\.")


def ungrouped(model: HookedTransformer) -> HookedTransformer:
    """The multi-head model that computes the same: K and V weights repeated per query head, all others shared with `model`.

    Raises HookError where hooks are attached, since the copy would compute without them.
    """
    from .transformer import HookedTransformer

    cfg = model.cfg
    if all(cfg.for_layer(layer).group_size == 1 for layer in range(cfg.n_layers)):
        return model
    grouped = {layer.mixer for layer in map(cfg.for_layer, range(cfg.n_layers)) if layer.group_size > 1}
    if other := grouped - PLAIN_KEYS:
        raise HookError(f"an ungrouped view exists of plain keys and values, which this model's {min(other)} layers do not have.")
    if hooked := [name for name in model.hook_names if model.hook_point(name).is_edited]:
        raise HookError(
            f"the ungrouped model would lack the hook attached to '{hooked[0]}'; remove it, or hook model.ungrouped()."
        )
    with torch.device("meta"):
        copy = HookedTransformer(_one_kv_head_per_query_head(cfg))
    for name, parameter in model.named_parameters():
        layer = cfg.for_layer(int(name.split(".")[1])) if name.startswith("blocks.") else cfg
        own_norm = ".attn.k_norm." in name and layer.qk_norm in ("own_per_head", "full_width")
        if layer.group_size > 1 and (PER_KV_HEAD.search(name) or own_norm):
            by_head = parameter.detach().unflatten(0, (layer.n_kv_heads, -1))
            rows = by_head.repeat_interleave(layer.group_size, 0).flatten(0, 1)
            parameter = nn.Parameter(rows, requires_grad=parameter.requires_grad)
        module, _, attribute = name.rpartition(".")
        setattr(copy.get_submodule(module), attribute, parameter)
    copy.share_parameters()
    if cfg.tie_embeddings:
        copy.unembed.weight = copy.embed.weight
    copy.tokenizer = model.tokenizer
    return copy


def _one_kv_head_per_query_head(cfg: TransformerConfig) -> TransformerConfig:
    by_type = {
        kind: changes | ({"n_kv_heads": changes.get("n_heads", cfg.n_heads)} if "n_kv_heads" in changes else {})
        for kind, changes in cfg.by_type.items()
    }
    return cfg.replace(n_kv_heads=cfg.n_heads, by_type=by_type)
