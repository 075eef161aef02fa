"""What an analysis needs of a model. `models.HookedTransformer` and TransformerLens's bridge both fit.

Analyses of activations use `HookedModel` alone; those of weights look for `blocks[l].attn.W_Q` and its like and say so when
a model has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class HookedModel(Protocol):
    """A decoder or encoder whose activations can be read and edited by hook name.

    `cfg` has at least n_layers, n_heads, d_vocab; hooks are called as `fn(tensor, hook)` and names are those of the classic
    HookedTransformer: `blocks.{l}.attn.hook_pattern` [batch, head, query, key] and so on.
    """

    cfg: Any

    def run_with_cache(self, *args: Any, **kwargs: Any) -> Any: ...

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any: ...

    def to_tokens(self, *args: Any, **kwargs: Any) -> Tensor: ...


def hook_names(model: Any) -> frozenset[str]:
    """The names that can be hooked; empty for a model that does not list them."""
    names: Iterable[str] = getattr(model, "hook_names", None) or getattr(model, "hook_dict", None) or ()
    return frozenset(names)


def model_name(model: Any) -> str:
    """The name a model's config carries, or its class."""
    for field in ("name", "model_name"):
        if name := getattr(model.cfg, field, ""):
            return str(name)
    return type(model).__name__


def n_logits(cfg: Any) -> int:
    """How many tokens the logits are over: d_vocab_out where a config has one, else d_vocab."""
    return getattr(cfg, "d_vocab_out", None) or cfg.d_vocab


def bos_token_id(model: Any) -> int | None:
    """The id of the beginning-of-sequence token, from the config or else the tokenizer; None where there is none."""
    found = getattr(model.cfg, "bos_token_id", None)
    if found is None:
        found = getattr(getattr(model, "tokenizer", None), "bos_token_id", None)
    return None if found is None else int(found)


def special_token_ids(model: Any) -> tuple[int, ...]:
    """BOS and end-of-sequence ids, sorted: tokens that random sequences leave out."""
    ends = getattr(model.cfg, "eos_token_ids", None) or (getattr(getattr(model, "tokenizer", None), "eos_token_id", None),)
    return tuple(sorted({int(token) for token in (bos_token_id(model), *ends) if token is not None}))


def has_two_stacks(model: Any) -> bool:
    """Whether it is an encoder-decoder, whose layers no single number names."""
    return getattr(getattr(model, "cfg", None), "encoder", None) is not None


def has_logits(model: Any) -> bool:
    """Whether it returns logits: a model without a head returns its last states."""
    return getattr(getattr(model, "cfg", None), "head", "lm") != "none"


def is_causal(model: Any) -> bool:
    """Whether queries see earlier keys only, so that logits predict the next token."""
    direction = getattr(model.cfg, "attention_dir", "causal")
    return bool(getattr(model.cfg, "causal", direction == "causal"))
