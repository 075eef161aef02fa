"""Grouped-query attention as the equal multi-head model, for comparison with tools that know no groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from .errors import HookError

if TYPE_CHECKING:
    from .transformer import HookedTransformer


def ungrouped(model: HookedTransformer) -> HookedTransformer:
    """The multi-head model that computes the same: K and V weights repeated per query head, all others shared with `model`.

    Raises HookError where hooks are attached, since the copy would compute without them.
    """
    from .transformer import HookedTransformer

    cfg = model.cfg
    if cfg.group_size == 1:
        return model
    if hooked := [name for name in model.hook_names if model.hook_point(name).is_edited]:
        raise HookError(
            f"the ungrouped model would lack the hook attached to '{hooked[0]}'; remove it, or hook model.ungrouped()."
        )
    with torch.device("meta"):
        copy = HookedTransformer(cfg.replace(n_kv_heads=cfg.n_heads))
    for name, parameter in model.named_parameters():
        if ".attn.k." in name or ".attn.v." in name:
            rows = (
                parameter.detach().unflatten(0, (cfg.n_kv_heads, cfg.d_head)).repeat_interleave(cfg.group_size, 0).flatten(0, 1)
            )
            parameter = nn.Parameter(rows, requires_grad=parameter.requires_grad)
        module, _, attribute = name.rpartition(".")
        setattr(copy.get_submodule(module), attribute, parameter)
    if cfg.tie_embeddings:
        copy.unembed.weight = copy.embed.weight
    copy.tokenizer = model.tokenizer
    return copy
