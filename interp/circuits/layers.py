"""One layer of a graph: how many heads write, what its mixer reads, and which heads each reader feeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import CircuitError

Feeds = tuple[tuple[int, ...], ...]
"""For each reader of one kind, the heads that compute their output from it."""

KINDS = ("q", "k", "v", "x")


@dataclass(frozen=True)
class Layer:
    """The parts of one layer. `readers` and `borrowed` list kinds in the order q, k, v."""

    n_heads: int
    readers: tuple[tuple[str, Feeds], ...]
    """("q", ...), ("k", ...), ("v", ...), or ("x", ...): one reader for a whole mixer, whose q, k and v are not read apart."""
    mlp: bool = True
    parallel: bool = False
    """Attention and MLP read the same stream, so no head writes to its own block's MLP."""
    source: int | None = None
    """The earlier layer from which this one takes something that it does not read itself, such as keys and values."""
    borrowed: tuple[tuple[str, Feeds], ...] = ()
    """Which heads of this layer the readers of `source` feed."""

    def __post_init__(self) -> None:
        if self.n_heads < 1:
            raise CircuitError(f"n_heads of a graph must be at least 1, got {self.n_heads}.")
        if self.borrowed and self.source is None:
            raise CircuitError("a layer that lists borrowed readers must name their layer as source.")
        for kind, feeds in self.readers + self.borrowed:
            if kind not in KINDS:
                raise CircuitError(f"a reader of attention is one of {', '.join(KINDS)}, got {kind!r}.")
            if any(not 0 <= head < self.n_heads for heads in feeds for head in heads):
                raise CircuitError(f"a <{kind}> reader feeds a head outside the layer's {self.n_heads}: {feeds}.")

    @classmethod
    def attention(cls, n_heads: int, n_kv_heads: int, *, mlp: bool = True, parallel: bool = False) -> Layer:
        """A query per head, a key and a value per KV head. Raises CircuitError where KV heads do not divide the heads."""
        if n_kv_heads < 1 or n_heads % n_kv_heads:
            raise CircuitError(f"n_heads must be a multiple of n_kv_heads, got {n_heads} and {n_kv_heads}.")
        counts = {"q": n_heads, "k": n_kv_heads, "v": n_kv_heads}
        return cls(n_heads, tuple((kind, groups(n, n_heads)) for kind, n in counts.items()), mlp, parallel)

    @classmethod
    def whole(cls, n_heads: int, *, mlp: bool = True, parallel: bool = False) -> Layer:
        """One reader <x> for the whole mixer, as a recurrent one has."""
        return cls(n_heads, (("x", groups(1, n_heads)),), mlp, parallel)

    def feeds(self, kind: str) -> Feeds:
        """The heads that each reader of a kind feeds; empty for a kind that the layer does not have."""
        return dict(self.readers).get(kind, ())

    def letter(self, kind: str) -> str:
        """ "h" where every head has its own reader of the kind, else "g", for group."""
        return "h" if len(self.feeds(kind)) == self.n_heads else "g"

    @property
    def n_groups(self) -> int:
        """Numbers that the layer's group readers count to; 0 where every reader has a head of its own."""
        return max((len(feeds) for kind, feeds in self.readers if kind != "x" and self.letter(kind) == "g"), default=0)

    @property
    def is_whole(self) -> bool:
        """Whether one reader stands for the whole mixer."""
        return bool(self.feeds("x"))

    @property
    def n_kv_heads(self) -> int:
        """Key readers, or the heads where keys are not read apart."""
        return len(self.feeds("k")) or self.n_heads

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `from_dict` is the inverse."""
        found = {"n_heads": self.n_heads, "readers": dict(self.readers), "mlp": self.mlp, "parallel": self.parallel}
        return found | ({} if self.source is None else {"source": self.source, "borrowed": dict(self.borrowed)})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layer:
        """Raises CircuitError for data that is no layer."""
        try:
            n_heads, readers, borrowed = int(data["n_heads"]), _feeds(data["readers"]), _feeds(data.get("borrowed", {}))
            return cls(n_heads, readers, bool(data["mlp"]), bool(data["parallel"]), data.get("source"), borrowed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CircuitError(
                f"a layer of a graph must give n_heads, readers, mlp and parallel, got {data!r} ({error})."
            ) from None


def _feeds(data: Mapping[str, Any]) -> tuple[tuple[str, Feeds], ...]:
    found = ((kind, tuple(tuple(map(int, heads)) for heads in feeds)) for kind, feeds in data.items())
    return tuple(sorted(found, key=lambda item: KINDS.index(item[0])))


def groups(n_readers: int, n_heads: int) -> Feeds:
    """Heads in equal groups of neighbours, a group per reader; every head for every reader where they do not divide so."""
    size, rest = divmod(n_heads, n_readers)
    if rest or not size:
        return (tuple(range(n_heads)),) * n_readers
    return tuple(tuple(range(i * size, (i + 1) * size)) for i in range(n_readers))
