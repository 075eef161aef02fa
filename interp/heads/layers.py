"""Which layers of a model have an attention pattern to measure, how many heads each has, and what is left out and why."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import InterpError
from ..protocol import has_two_stacks, hook_names

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeftOut:
    """What could not be measured in a layer, and why. what: "scores" for all of them, or the name of some."""

    layer: int
    what: str
    why: str

    def __str__(self) -> str:
        return f"layer {self.layer}, {self.what}: {self.why}"


def mixer_of(model: Any, layer: int) -> Any:
    """A layer's `blocks[layer].attn`; None for a model that does not show it."""
    try:
        return getattr(model.blocks[layer], "attn", None)
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def n_heads_of(model: Any, layer: int) -> int:
    """Heads of one layer: as many as its output weights have, or the config says."""
    weights = getattr(mixer_of(model, layer), "W_O", None)
    return int(model.cfg.n_heads) if weights is None else len(weights)


def signed_pattern(model: Any, layer: int) -> bool:
    """Whether a layer says that its pattern has negative weights."""
    return bool(getattr(mixer_of(model, layer), "signed_pattern", False))


def unmeasurable(model: Any, layers: Iterable[int]) -> tuple[LeftOut, ...]:
    """The layers without a pattern hook. Raises InterpError where that is all of them, and for an encoder-decoder."""
    if has_two_stacks(model):
        raise InterpError(
            "heads are named by layer and head, which an encoder-decoder has in both stacks; read its patterns with "
            "model.run_with_cache(..., names='*.hook_pattern') instead."
        )
    names, layers = hook_names(model), tuple(layers)
    wanted = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in layers}
    missing = [layer for layer in layers if names and wanted[layer] not in names]
    if len(missing) == len(layers):
        first = missing[0]
        raise InterpError(
            f"layer {first} has no attention pattern to measure: the model has no hook '{wanted[first]}'"
            f"{', nor has any other of the layers asked for such a one' if len(layers) > 1 else ''}."
        )
    kind = {layer: type(mixer_of(model, layer)).__name__ for layer in missing}
    return tuple(LeftOut(layer, "scores", f"the mixer there, {kind[layer]}, forms no attention pattern") for layer in missing)


def left_out_sentences(left_out: Iterable[LeftOut]) -> list[str]:
    """One sentence for all layers that lack the same thing for the same reason."""
    layers: dict[tuple[str, str], list[int]] = {}
    for each in left_out:
        layers.setdefault((each.what, each.why), []).append(each.layer)
    return [f"Without {what}: layers {', '.join(map(str, found))}, as {why}." for (what, why), found in layers.items()]


def log_left_out(what: str, left_out: Iterable[LeftOut]) -> None:
    """Says in the log what an analysis leaves out: as a warning where that is all scores of a layer."""
    for each in left_out_sentences(left_out):
        logger.log(logging.WARNING if each.startswith("Without scores") else logging.INFO, "%s: %s", what, each)
