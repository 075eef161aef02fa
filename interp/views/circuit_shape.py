"""What each layer of a circuit.json has: heads, which readers they have of their own, and which they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .names import Name
from .page import ViewError


@dataclass(frozen=True)
class LayerShape:
    """One layer. own: the readers of each head; shared: those of a group of heads, or of the whole mixer ("x")."""

    n_heads: int
    own: tuple[str, ...] = ("q", "k", "v")
    shared: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    """The heads of each group that shares readers; all heads for a mixer with one reader."""
    mlp: bool = True
    parallel: bool = False
    source: int | None = None
    """The earlier layer whose groups feed heads of this one too."""
    borrowed: tuple[tuple[int, ...], ...] = ()
    """The heads of this layer that each of those groups feeds."""

    def __str__(self) -> str:
        own = f"{self.n_heads} heads that read {', '.join(self.own)}" if self.own else f"{self.n_heads} heads"
        return f"{own}, {len(self.groups)} groups that read {', '.join(self.shared)}" if self.groups else own

    @property
    def is_whole(self) -> bool:
        """Whether the mixer has one reader."""
        return self.shared == ("x",)

    def holds(self, name: Name) -> bool:
        """Whether the layer has this node, and the reader where the name has a port."""
        match name.kind:
            case "head":
                return name.index < self.n_heads and (not name.port or name.port in self.own)
            case "group":
                if not self.groups:  # a group of one is its head
                    return name.index < self.n_heads and name.port != "q"
                return name.index < len(self.groups) and not self.is_whole and (not name.port or name.port in self.shared)
            case "mixer":
                return self.is_whole
        return self.mlp

    def name_of(self, layer: int, group: int) -> Name:
        """The name of a group, or of the mixer."""
        return Name("mixer", layer) if self.is_whole else Name("group", layer, group)


def groups_of(shape: Sequence[LayerShape], layer: int, head: int) -> list[Name]:
    """The groups that a head belongs to, or borrows from."""
    own, source = shape[layer], shape[layer].source
    found = [own.name_of(layer, group) for group, heads in enumerate(own.groups) if head in heads]
    if source is None or not shape[source].groups:
        return found
    return found + [shape[source].name_of(source, group) for group, heads in enumerate(own.borrowed) if head in heads]


def read_shape(cfg: Mapping[str, Any], *, ungrouped: bool) -> tuple[LayerShape, ...]:
    """The layers of a circuit.json's cfg: its `layers` where they differ, else n_layers equal ones.

    ungrouped: key and value readers belong to single heads, whatever n_kv_heads says. Raises ViewError naming the field at fault.
    """
    if "layers" in cfg:
        return _listed(cfg["layers"])
    n_layers, n_heads = (_size(cfg, field) for field in ("n_layers", "n_heads"))
    n_kv_heads = cfg.get("n_kv_heads") or n_heads
    if n_heads % n_kv_heads:
        raise ViewError(f"circuit['cfg']['n_kv_heads'] is {n_kv_heads}, which does not divide n_heads = {n_heads}.")
    parallel = bool(cfg.get("parallel_attn_mlp", False))
    if ungrouped or n_kv_heads == n_heads:
        return (LayerShape(n_heads, parallel=parallel),) * n_layers
    size = n_heads // n_kv_heads
    groups = tuple(tuple(range(first, first + size)) for first in range(0, n_heads, size))
    return (LayerShape(n_heads, ("q",), ("k", "v"), groups, parallel=parallel),) * n_layers


def _size(cfg: Mapping[str, Any], field: str) -> int:
    value = cfg.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ViewError(f"circuit['cfg'][{field!r}] is {value!r}; wanted a whole number of at least 1.")
    return value


def _listed(layers: Any) -> tuple[LayerShape, ...]:
    try:
        found = tuple(_layer(layer) for layer in layers)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ViewError(
            f"circuit['cfg']['layers'] must list n_heads, readers, mlp and parallel of every layer ({error!r})."
        ) from None
    if not found:
        raise ViewError("circuit['cfg']['layers'] is empty; wanted at least one layer.")
    return found


def _layer(layer: Mapping[str, Any]) -> LayerShape:
    n_heads = int(layer["n_heads"])
    readers = _lists(layer["readers"])
    own = tuple(kind for kind, feeds in readers.items() if kind != "x" and len(feeds) == n_heads)
    shared = tuple(kind for kind in readers if kind not in own)
    groups = _united([readers[kind] for kind in shared])
    borrowed = _united(list(_lists(layer.get("borrowed") or {}).values()))
    return LayerShape(n_heads, own, shared, groups, bool(layer["mlp"]), bool(layer["parallel"]), layer.get("source"), borrowed)


def _lists(readers: Mapping[str, Any]) -> dict[str, list[list[int]]]:
    return {kind: [list(map(int, heads)) for heads in feeds] for kind, feeds in readers.items()}


def _united(kinds: list[list[list[int]]]) -> tuple[tuple[int, ...], ...]:
    """By number, the heads that readers of any of these kinds feed."""
    n = max((len(feeds) for feeds in kinds), default=0)
    return tuple(tuple(sorted({head for feeds in kinds for heads in feeds[i : i + 1] for head in heads})) for i in range(n))
