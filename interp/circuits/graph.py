"""The graph of a Transformer: who writes to the residual stream, who reads from it, and which writer comes before which reader.

    writers   input   a{l}.h{h}   m{l}                          what is added to the residual stream
    readers   a{l}.h{h}<q>   a{l}.g{g}<k>   a{l}.g{g}<v>   m{l}   logits          what takes its input from it

An edge joins a writer to a reader that comes after it. With grouped-query attention a model has one key and one value reader
per KV head (group g), and so has the graph; where every query head has its own, they are called a{l}.h{h}<k> and
a{l}.h{h}<v>. Writers are numbered in the order of computation, so the writers a reader sees are always the first few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from .errors import CircuitError, near


@dataclass(frozen=True)
class Port:
    """One end of an edge. kind: "input", "head" or "mlp" for writers; "q", "k", "v", "mlp" or "logits" for readers."""

    name: str
    kind: str
    layer: int
    """The block; -1 for the input and n_layers for the logits."""
    index: int
    """The head, or KV head, within the layer; 0 elsewhere."""


@dataclass(frozen=True)
class Graph:
    """Structure only; two models of the same shape have the same graph."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    parallel: bool = False
    """Attention and MLP of a block read the same stream, so no head writes to its own block's MLP."""
    attn_only: bool = False

    def __post_init__(self) -> None:
        for field in ("n_layers", "n_heads", "n_kv_heads"):
            if (value := getattr(self, field)) < 1:
                raise CircuitError(f"{field} of a graph must be at least 1, got {value}.")
        if self.n_heads % self.n_kv_heads:
            raise CircuitError(f"n_heads must be a multiple of n_kv_heads, got {self.n_heads} and {self.n_kv_heads}.")

    @classmethod
    def of(cls, model: Any) -> Graph:
        """The graph of a model, or of its config."""
        cfg = getattr(model, "cfg", model)
        return cls(cfg.n_layers, cfg.n_heads, cfg.n_kv_heads, parallel=cfg.block == "parallel", attn_only=cfg.attn_only)

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.n_heads // self.n_kv_heads

    @property
    def grouped(self) -> bool:
        return self.group_size > 1

    def ungrouped(self) -> Graph:
        """The graph of the equal model in which every query head has its own key and value."""
        return Graph(self.n_layers, self.n_heads, self.n_heads, self.parallel, self.attn_only)

    @cached_property
    def writers(self) -> tuple[Port, ...]:
        """All writers, in the order of computation."""
        ports = [Port("input", "input", -1, 0)]
        for layer in range(self.n_layers):
            ports += [Port(f"a{layer}.h{head}", "head", layer, head) for head in range(self.n_heads)]
            ports += [] if self.attn_only else [Port(f"m{layer}", "mlp", layer, 0)]
        return tuple(ports)

    @cached_property
    def readers(self) -> tuple[Port, ...]:
        """All readers, in the order of computation; within a layer q, k, v by head, then the MLP."""
        letter = "g" if self.grouped else "h"
        ports = []
        for layer in range(self.n_layers):
            ports += [Port(f"a{layer}.h{head}<q>", "q", layer, head) for head in range(self.n_heads)]
            for kind in "kv":
                ports += [Port(f"a{layer}.{letter}{group}<{kind}>", kind, layer, group) for group in range(self.n_kv_heads)]
            ports += [] if self.attn_only else [Port(f"m{layer}", "mlp", layer, 0)]
        return (*ports, Port("logits", "logits", self.n_layers, 0))

    def heads(self, layer: int) -> slice:
        """Writer indices of one layer's heads."""
        start = 1 + layer * (self.n_heads + (not self.attn_only))
        return slice(start, start + self.n_heads)

    def mlp(self, layer: int) -> int:
        """Writer index of one layer's MLP."""
        return self.heads(layer).stop

    def inputs(self, layer: int, kind: str) -> slice:
        """Reader indices of one layer's "q", "k", "v", all three ("attn"), "mlp", or the "logits"."""
        heads, groups = self.n_heads, self.n_kv_heads
        attention = heads + 2 * groups
        ends = {
            "q": (0, heads),
            "k": (heads, heads + groups),
            "v": (heads + groups, attention),
            "attn": (0, attention),
            "mlp": (attention, attention + 1),
            "logits": (0, 1),
        }
        base = layer * (attention + (not self.attn_only))
        return slice(base + ends[kind][0], base + ends[kind][1])

    def n_upstream(self, layer: int, kind: str) -> int:
        """How many writers, counted from the first, come before this layer's readers of a kind."""
        if kind == "mlp" and not self.parallel:
            return self.heads(layer).stop
        return self.heads(layer).start

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
        """Which writers compute their output from a reader: a KV head feeds every query head of its group; logits feed none."""
        feeds = torch.zeros(len(self.readers), len(self.writers), dtype=torch.bool)
        for row, port in enumerate(self.readers):
            if port.kind == "mlp":
                feeds[row, self.mlp(port.layer)] = True
            elif port.kind != "logits":
                size = 1 if port.kind == "q" else self.group_size
                start = self.heads(port.layer).start + port.index * size
                feeds[row, start : start + size] = True
        return feeds

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
        """The node a reader belongs to: its head, its group, its MLP, or the logits."""
        return re.sub(r"<[qkv]>$", "", reader.name)


def _find(name: str, index: dict[str, int], what: str) -> int:
    if name not in index:
        raise CircuitError(f"this graph has no {what} called {name!r}{near(name, index)}.")
    return index[name]
