"""Checking what a caller says about tokens beside their ids: segments, documents, prefix, own masks, global tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .attention.context import TokenInfo
from .cache import KVCache
from .config import TransformerConfig
from .errors import InputError

WITHOUT_GLOBAL_TOKENS = ("full", "sliding", "chunked", "big_bird", "sink_window")
"""Masks that take no notice of them; one that a user registers may."""


def token_info(tokens: Tensor, cfg: TransformerConfig, cache: KVCache | None, **given: Any) -> TokenInfo:
    """The arguments of a model's call as tensors of the right shape. Raises InputError naming the one that cannot be used."""
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return TokenInfo()
    if cache is not None and (cached := {"documents", "visible", "global_tokens"} & set(given)):
        raise InputError(f"{min(cached)} cannot be combined with a cache, which keeps no record of it; call without one.")
    if cache is not None and "prefix" in given and cache.length:
        raise InputError("prefix must come with the first tokens of a cache, whole; later tokens see it as they see all others.")
    if "token_types" in given and not cfg.n_token_types:
        raise InputError("token_types were given, but this model has no token-type embeddings; leave them out.")
    if "global_tokens" in given and all(cfg.for_layer(layer).mask in WITHOUT_GLOBAL_TOKENS for layer in range(cfg.n_layers)):
        raise InputError("global_tokens were given, but no layer of this model has a mask that knows of them; leave them out.")
    checks = {
        "token_types": lambda value: _token_types(value, tokens, cfg),
        "documents": lambda value: _per_token("documents", value, tokens).long(),
        "prefix": lambda value: _prefix(value, tokens, cache),
        "visible": lambda value: _visible(value, tokens, cfg),
        "global_tokens": lambda value: _flags("global_tokens", _per_token("global_tokens", value, tokens)),
    }
    return TokenInfo(**{name: checks[name](value) for name, value in given.items()})


def _tensor(name: str, value: Any, device: torch.device) -> Tensor:
    try:
        tensor = torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must be a tensor or nested lists of numbers, got {type(value).__name__}.") from None
    if tensor.is_floating_point() or tensor.is_complex():
        raise InputError(f"{name} must hold whole numbers or flags, got {tensor.dtype}.")
    return tensor


def _per_token(name: str, value: Any, tokens: Tensor) -> Tensor:
    tensor = _tensor(name, value, tokens.device)
    tensor = tensor[None] if tensor.dim() == 1 and tokens.shape[0] == 1 else tensor
    if tensor.shape != tokens.shape[:2]:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}, wanted {tuple(tokens.shape[:2])}, as the tokens.")
    return tensor


def _flags(name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.bool and not bool(((tensor == 0) | (tensor == 1)).all()):
        raise InputError(f"{name} must hold 1 (or True) and 0 (or False) only.")
    return tensor.bool()


def _token_types(value: Any, tokens: Tensor, cfg: TransformerConfig) -> Tensor:
    types = _per_token("token_types", value, tokens).long()
    if int(types.min()) < 0 or int(types.max()) >= cfg.n_token_types:
        raise InputError(f"token_types must lie in 0 to {cfg.n_token_types - 1}, got {int(types.min())} to {int(types.max())}.")
    return types


def _prefix(value: Any, tokens: Tensor, cache: KVCache | None) -> Tensor:
    prefix = _tensor("prefix", value, tokens.device).long()
    prefix = prefix.expand(tokens.shape[0]) if prefix.dim() == 0 else prefix
    if prefix.shape != tokens.shape[:1] or int(prefix.min()) < 0:
        raise InputError(f"prefix must be a length of 0 or more, or one for each of the {tokens.shape[0]} rows, got {value!r}.")
    if cache is not None and int(prefix.max()) > tokens.shape[1]:
        raise InputError(
            f"prefix has {int(prefix.max())} tokens, of which this call with a cache brings {tokens.shape[1]}; give the whole "
            "prefix at once."
        )
    return prefix


def _visible(value: Any, tokens: Tensor, cfg: TransformerConfig) -> Tensor:
    visible = _flags("visible", _tensor("visible", value, tokens.device))
    visible = visible[None, None] if visible.dim() == 2 else visible[:, None] if visible.dim() == 3 else visible
    batch, length = tokens.shape[:2]
    heads = {1} | _maps_per_head(cfg)
    fits = visible.dim() == 4 and visible.shape[0] in (1, batch) and visible.shape[1] in heads
    if not fits or visible.shape[2:] != (length, length):
        raise InputError(
            f"visible has shape {tuple(visible.shape)}, wanted [batch, head, query, key] = [1 or {batch}, "
            f"{' or '.join(map(str, sorted(heads)))}, {length}, {length}], or without its leading axes."
        )
    return visible


def _maps_per_head(cfg: TransformerConfig) -> set[int]:
    """How many heads a mask may tell apart: those of the layers, where all have as many and none chooses keys per group."""
    layers = [cfg.for_layer(layer) for layer in range(cfg.n_layers)]
    heads = {layer.n_heads for layer in layers}
    return heads if len(heads) == 1 and all(layer.mixer != "native_sparse" for layer in layers) else set()
