"""Adding a variant of one's own: `register("mask", "every_other", function)` makes the name usable in any config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .attention.masks import MASKS
from .attention.mixers import MIXERS
from .attention.normalisers import NORMALISERS
from .attention.out_steps import OUT_STEPS
from .attention.score_terms import SCORE_TERMS
from .block import ORDERS, BlockOrder
from .config.names import NAMES, PART_NAMES
from .errors import ConfigError
from .mlp import ACTIVATION_FUNCTIONS
from .mlps import MLPS
from .routing import ROUTERS

REGISTRIES: dict[str, dict[str, Any]] = {
    "activation": ACTIVATION_FUNCTIONS,
    "block": ORDERS,
    "mask": MASKS,
    "mixer": MIXERS,
    "mlp": MLPS,
    "normaliser": NORMALISERS,
    "out_steps": OUT_STEPS,
    "router": ROUTERS,
    "score_terms": SCORE_TERMS,
}
"""By field of `TransformerConfig`, and of `ExpertsConfig`: what each of its names stands for."""


def register(field: str, name: str, entry: Any) -> None:
    """Add a variant under a name that configs can then use in `field`.

    entry: what the field's registry holds, as described where it is defined: a function for "activation", "mask" and "router",
    a `BlockOrder` for "block", a module class for the others. Raises ConfigError for a field without registry, a name that is
    taken, and an entry of another kind.
    """
    if field not in REGISTRIES:
        raise ConfigError(f"field must be one of {', '.join(REGISTRIES)}, got {field!r}.")
    if name in REGISTRIES[field]:
        raise ConfigError(f"{field} {name!r} is taken; choose another name.")
    words, fits = _ENTRIES.get(field, ("a class of modules", _is_module_class))
    if not fits(entry):
        raise ConfigError(f"an entry of {field!r} must be {words}, got {entry!r}.")
    REGISTRIES[field][name] = entry
    (NAMES | PART_NAMES)[field].append(name)


def _is_module_class(entry: Any) -> bool:
    return isinstance(entry, type) and issubclass(entry, nn.Module)


_ENTRIES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "activation": ("a function", callable),
    "mask": ("a function", callable),
    "router": ("a function", callable),
    "block": ("a BlockOrder", lambda entry: isinstance(entry, BlockOrder)),
}
"""By field: what an entry must be, in words, and the test. Module classes where nothing is said."""
