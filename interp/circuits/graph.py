"""The graph of a Transformer: who writes to the residual stream, who reads from it, and which writer comes before which reader.

    writers   input   a{l}.h{h}   m{l}                          what is added to the residual stream
    readers   a{l}.h{h}<q>   a{l}.g{g}<k>   a{l}.g{g}<v>   a{l}<x>   m{l}   logits          what takes its input from it

An edge joins a writer to a reader that comes after it. With grouped-query attention a model has one key and one value reader
per KV head (group g), and so has the graph; where every query head has its own, they are called a{l}.h{h}<k> and
a{l}.h{h}<v>. A layer whose mixer does not read queries, keys and values apart, such as a recurrent one, has the one reader
a{l}<x>. Layers may differ in all of this (`layers.Layer`), and may use the keys and values of an earlier one. Writers are
numbered in the order of computation, so the writers a reader sees are always the first few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from .blocks import layer_of
from .errors import CircuitError, near
from .layers import Layer, groups


@dataclass(frozen=True)
class Port:
    """One end of an edge. kind: "input", "head" or "mlp" for writers; "q", "k", "v", "x", "mlp" or "logits" for readers."""

    name: str
    kind: str
    layer: int
    """The block; -1 for the input and n_layers for the logits."""
    index: int
    """The head, or KV head, within the layer; 0 elsewhere."""


@dataclass(frozen=True, repr=False)
class Graph:
    """Structure only; two models of the same shape have the same graph.

    Graph(n_layers, n_heads, n_kv_heads) is that of equal layers of attention; `Graph.of_layers` takes any. n_heads and
    n_kv_heads are those of the layer that has most; `parallel` and `attn_only` hold for all layers or are False.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    parallel: bool = False
    """Attention and MLP of a block read the same stream, so no head writes to its own block's MLP."""
    attn_only: bool = False
    layers: tuple[Layer, ...] = ()
    """Filled in from the sizes where it is not given."""

    def __post_init__(self) -> None:
        if not self.layers:
            for field in ("n_layers", "n_heads", "n_kv_heads"):
                if (value := getattr(self, field)) < 1:
                    raise CircuitError(f"{field} of a graph must be at least 1, got {value}.")
            layer = Layer.attention(self.n_heads, self.n_kv_heads, mlp=not self.attn_only, parallel=self.parallel)
            object.__setattr__(self, "layers", (layer,) * self.n_layers)
        if self.sizes != _sizes(self.layers):
            raise CircuitError(f"the sizes of a graph must be those of its layers, {_sizes(self.layers)}, got {self.sizes}.")

    @classmethod
    def of_layers(cls, layers: Iterable[Layer]) -> Graph:
        """The graph of these layers, in order; at least one."""
        layers = tuple(layers)
        return cls(**_sizes(layers), layers=layers)

    @classmethod
    def of(cls, model: Any) -> Graph:
        """The graph of a model. Raises CircuitError for one whose layers do not say what they read."""
        return cls.of_layers(layer_of(model, layer) for layer in range(model.cfg.n_layers))

    @property
    def sizes(self) -> dict[str, Any]:
        """All fields but `layers`."""
        return {name: getattr(self, name) for name in ("n_layers", "n_heads", "n_kv_heads", "parallel", "attn_only")}

    @cached_property
    def is_uniform(self) -> bool:
        """Whether all layers are equal layers of attention, so that the sizes say everything."""
        return self == Graph(**self.sizes) if self.n_heads % self.n_kv_heads == 0 else False

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={value!r}" for name, value in self.sizes.items())
        return f"Graph({sizes})" if self.is_uniform else f"Graph({sizes}, layers={'; '.join(map(_brief, self.layers))})"

    @property
    def grouped(self) -> bool:
        """Whether any reader of keys or values is shared by several heads."""
        return any(layer.letter(kind) == "g" for layer in self.layers for kind, _ in layer.readers if kind in "kv")

    def ungrouped(self) -> Graph:
        """The graph of the equal model in which every query head has its own key and value."""
        return Graph.of_layers(_ungrouped(layer, self.layers) for layer in self.layers)

    @cached_property
    def writers(self) -> tuple[Port, ...]:
        """All writers, in the order of computation."""
        ports = [Port("input", "input", -1, 0)]
        for number, layer in enumerate(self.layers):
            ports += [Port(f"a{number}.h{head}", "head", number, head) for head in range(layer.n_heads)]
            ports += [Port(f"m{number}", "mlp", number, 0)] if layer.mlp else []
        return tuple(ports)

    @cached_property
    def readers(self) -> tuple[Port, ...]:
        """All readers, in the order of computation; within a layer q, k, v by head, then the MLP."""
        ports = []
        for number, layer in enumerate(self.layers):
            for kind, feeds in layer.readers:
                ports += [Port(_reader_name(number, layer, kind, i), kind, number, i) for i in range(len(feeds))]
            ports += [Port(f"m{number}", "mlp", number, 0)] if layer.mlp else []
        return (*ports, Port("logits", "logits", self.n_layers, 0))

    @cached_property
    def _places(self) -> dict[tuple[int, str], slice]:
        """Reader indices by layer and kind."""
        places: dict[tuple[int, str], slice] = {}
        for i, port in enumerate(self.readers):
            start = places[port.layer, port.kind].start if (port.layer, port.kind) in places else i
            places[port.layer, port.kind] = slice(start, i + 1)
        return places

    @cached_property
    def _first_heads(self) -> tuple[int, ...]:
        """Writer index of each layer's first head, and the number of writers at the end."""
        return tuple(accumulate((layer.n_heads + layer.mlp for layer in self.layers), initial=1))

    def heads(self, layer: int) -> slice:
        """Writer indices of one layer's heads."""
        start = self._first_heads[layer]
        return slice(start, start + self.layers[layer].n_heads)

    def mlp(self, layer: int) -> int:
        """Writer index of one layer's MLP."""
        return self.heads(layer).stop

    def kinds(self, layer: int, stage: str) -> tuple[str, ...]:
        """The kinds of readers that read together: "attn" stands for all of a layer's mixer, others for themselves."""
        return tuple(kind for kind, _ in self.layers[layer].readers) if stage == "attn" else (stage,)

    def inputs(self, layer: int, kind: str) -> slice:
        """Reader indices of one layer's "q", "k", "v" or "x", all that its mixer has ("attn"), "mlp", or the "logits"."""
        kinds = self.kinds(layer, kind)
        return slice(self._places[layer, kinds[0]].start, self._places[layer, kinds[-1]].stop)

    def stages(self) -> Iterator[tuple[int, str]]:
        """(layer, "attn"), (layer, "mlp") and (n_layers, "logits"): readers that see the same writers, in order."""
        for number, layer in enumerate(self.layers):
            yield number, "attn"
            if layer.mlp:
                yield number, "mlp"
        yield self.n_layers, "logits"

    def restart(self, layer: int) -> int:
        """The last layer from which a run can start and give all that `layer` and later ones need: an earlier one where they
        take something from it."""
        lent = [each.source for each in self.layers[layer:] if each.source is not None]
        first = min([layer, *lent])
        return first if first == layer else self.restart(first)

    def n_upstream(self, layer: int, kind: str) -> int:
        """How many writers, counted from the first, come before this layer's readers of a kind."""
        if kind == "mlp" and not self.layers[layer].parallel:
            return self.heads(layer).stop
        return self._first_heads[layer]

    @property
    def allowed(self) -> Bool[Tensor, "writers readers"]:
        """Which pairs are edges."""
        upstream = torch.tensor([self.n_upstream(port.layer, port.kind) for port in self.readers])
        return torch.arange(len(self.writers))[:, None] < upstream

    @cached_property
    def n_edges(self) -> int:
        return int(self.allowed.sum())

    @property
    def feeds(self) -> Bool[Tensor, "readers writers"]:
        """Which writers compute their output from a reader: a KV head feeds every query head of its group, also in later
        layers that use its keys and values; logits feed none."""
        feeds = torch.zeros(len(self.readers), len(self.writers), dtype=torch.bool)
        for number, layer in enumerate(self.layers):
            lent = () if layer.source is None else ((layer.source, layer.borrowed),)
            for source, readers in ((number, layer.readers), *lent):
                for kind, fed in readers:
                    first, head = self.inputs(source, kind).start, self.heads(number).start
                    for i, heads in enumerate(fed):
                        feeds[first + i, [head + h for h in heads]] = True
            if layer.mlp:
                feeds[self.inputs(number, "mlp").start, self.mlp(number)] = True
        return feeds

    def reader_of(self, layer: int, head: int, kind: str) -> str | None:
        """The name of the reader of a kind ("q", "k", "v", "x") that feeds a head; None where its layer has none of that kind."""
        feeds = self.layers[layer].feeds(kind)
        found = (i for i, heads in enumerate(feeds) if head in heads)
        return next((_reader_name(layer, self.layers[layer], kind, i) for i in found), None)

    def edge_name(self, writer: int, reader: int) -> str:
        """ "a0.h3->a1.g0<k>" and its like."""
        return f"{self.writers[writer].name}->{self.readers[reader].name}"

    def edge_names(self) -> list[str]:
        """All edges, writer by writer."""
        return [self.edge_name(writer, reader) for writer, reader in self.allowed.nonzero().tolist()]

    def edge(self, name: str) -> tuple[int, int]:
        """(writer, reader) indices of an edge by name. Raises CircuitError, with near matches, for a name that is no edge."""
        writer, arrow, reader = name.partition("->")
        if not arrow:
            raise CircuitError(f"an edge is named 'writer->reader', such as '{self.edge_name(0, 0)}', got {name!r}.")
        pair = self.writer(writer), self.reader(reader)
        if not self.allowed[pair]:
            raise CircuitError(f"'{name}' is no edge of this graph: {reader} reads before {writer} has written.")
        return pair

    def writer(self, name: str) -> int:
        """Index of a writer by name."""
        return _find(name, self._writer_index, "writer")

    def reader(self, name: str) -> int:
        """Index of a reader by name."""
        return _find(name, self._reader_index, "reader")

    @cached_property
    def _writer_index(self) -> dict[str, int]:
        return {port.name: i for i, port in enumerate(self.writers)}

    @cached_property
    def _reader_index(self) -> dict[str, int]:
        return {port.name: i for i, port in enumerate(self.readers)}

    def head_of(self, reader: Port) -> str:
        """The node a reader belongs to: its head, its group, its mixer, its MLP, or the logits."""
        return re.sub(r"<[qkvx]>$", "", reader.name)


def _sizes(layers: tuple[Layer, ...]) -> dict[str, Any]:
    if not layers:
        raise CircuitError("n_layers of a graph must be at least 1, got 0.")
    return {
        "n_layers": len(layers),
        "n_heads": max(layer.n_heads for layer in layers),
        "n_kv_heads": max(layer.n_kv_heads for layer in layers),
        "parallel": all(layer.parallel for layer in layers),
        "attn_only": not any(layer.mlp for layer in layers),
    }


def _ungrouped(layer: Layer, layers: tuple[Layer, ...]) -> Layer:
    own = groups(layer.n_heads, layer.n_heads)
    readers = tuple((kind, own if kind in "kv" else feeds) for kind, feeds in layer.readers)
    if layer.source is None:
        return replace(layer, readers=readers)
    lent = groups(layers[layer.source].n_heads, layer.n_heads)
    return replace(layer, readers=readers, borrowed=tuple((kind, lent) for kind, _ in layer.borrowed))


def _reader_name(number: int, layer: Layer, kind: str, index: int) -> str:
    return f"a{number}<x>" if kind == "x" else f"a{number}.{layer.letter(kind)}{index}<{kind}>"


def _brief(layer: Layer) -> str:
    """ "4 heads q4 k2 v2 + MLP"."""
    readers = " ".join(f"{kind}{len(feeds)}" for kind, feeds in layer.readers)
    return f"{layer.n_heads} heads {readers}{' + MLP' if layer.mlp else ''}"


def _find(name: str, index: dict[str, int], what: str) -> int:
    if name not in index:
        raise CircuitError(f"this graph has no {what} called {name!r}{near(name, index)}.")
    return index[name]
