"""A circuit: the edges of a graph that are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from .errors import CircuitError
from .graph import Graph


@dataclass(frozen=True, eq=False, repr=False)
class Circuit:
    """A boolean mask [writers, readers] on a graph; True keeps the edge. `how` says in words how it was chosen."""

    graph: Graph
    mask: Bool[Tensor, "writers readers"]
    how: str = ""

    def __post_init__(self) -> None:
        wanted = (len(self.graph.writers), len(self.graph.readers))
        if tuple(self.mask.shape) != wanted:
            raise CircuitError(f"a circuit's mask must have shape {wanted} [writers, readers], got {tuple(self.mask.shape)}.")
        if (extra := self.mask & ~self.graph.allowed).any():
            writer, reader = extra.nonzero()[0].tolist()
            raise CircuitError(f"the mask keeps {self.graph.edge_name(writer, reader)}, which is no edge of this graph.")

    @classmethod
    def full(cls, graph: Graph) -> Circuit:
        """Every edge: the model itself."""
        return cls(graph, graph.allowed, "all edges")

    @classmethod
    def empty(cls, graph: Graph) -> Circuit:
        """No edge: everything ablated."""
        return cls(graph, torch.zeros_like(graph.allowed), "no edge")

    @classmethod
    def from_edges(cls, graph: Graph, edges: Iterable[str]) -> Circuit:
        """The edges with these names. Raises CircuitError, with near matches, for a name that is no edge."""
        mask = torch.zeros_like(graph.allowed)
        for name in edges:
            mask[graph.edge(name)] = True
        return cls(graph, mask, "named edges")

    def __repr__(self) -> str:
        return f"Circuit({self.n_edges:,} of {self.graph.n_edges:,} edges: {self.how})"

    def __len__(self) -> int:
        return self.n_edges

    def __contains__(self, edge: object) -> bool:
        return isinstance(edge, str) and bool(self.mask[self.graph.edge(edge)])

    @property
    def n_edges(self) -> int:
        return int(self.mask.sum())

    @property
    def edges(self) -> list[str]:
        """Names of the kept edges, writer by writer."""
        return [self.graph.edge_name(writer, reader) for writer, reader in self.mask.nonzero().tolist()]

    @property
    def nodes(self) -> list[str]:
        """Nodes that a kept edge leaves or enters, in the order of computation; KV groups (a1.g0) come with their heads."""
        ends = {self.graph.writers[i].name for i in self.mask.any(1).nonzero()[:, 0].tolist()}
        ends |= {self.graph.head_of(self.graph.readers[i]) for i in self.mask.any(0).nonzero()[:, 0].tolist()}
        return [name for name in node_names(self.graph) if name in ends]

    def __or__(self, other: Circuit) -> Circuit:
        """Edges in either circuit."""
        self._same_graph(other)
        return Circuit(self.graph, self.mask | other.mask, "union")

    def __and__(self, other: Circuit) -> Circuit:
        """Edges in both circuits."""
        self._same_graph(other)
        return Circuit(self.graph, self.mask & other.mask, "intersection")

    def __sub__(self, other: Circuit) -> Circuit:
        """Edges of this circuit that the other lacks."""
        self._same_graph(other)
        return Circuit(self.graph, self.mask & ~other.mask, "difference")

    def jaccard(self, other: Circuit) -> float:
        """Edges in both over edges in either; 1 for two empty circuits."""
        self._same_graph(other)
        union = int((self.mask | other.mask).sum())
        return int((self.mask & other.mask).sum()) / union if union else 1.0

    def _same_graph(self, other: Circuit) -> None:
        if self.graph != other.graph:
            raise CircuitError(f"the circuits are on different graphs: {self.graph} and {other.graph}.")


def node_names(graph: Graph) -> list[str]:
    """Every node of a graph in the order of computation: input, per layer what several heads share, heads, MLP; logits."""
    names = ["input"]
    for number, layer in enumerate(graph.layers):
        names += [f"a{number}"] if layer.is_whole else [f"a{number}.g{group}" for group in range(layer.n_groups)]
        names += [f"a{number}.h{head}" for head in range(layer.n_heads)]
        names += [f"m{number}"] if layer.mlp else []
    return [*names, "logits"]
