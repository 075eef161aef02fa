"""What a circuit.json holds, checked and ranked: the edges to draw, the totals of every node, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .circuit_shape import LayerShape, read_shape
from .names import Name, parse_edge, parse_name
from .page import ViewError, finite


@dataclass(frozen=True)
class Edge:
    """One edge of the circuit. rank: 1 for the largest |score| among all edges of the circuit."""

    writer: Name
    reader: Name
    score: float
    rank: int


@dataclass(frozen=True)
class Total:
    """The signed sum and the number of the circuit's edges that leave or enter a node."""

    score: float = 0.0
    edges: int = 0

    def plus(self, score: float) -> Total:
        return Total(self.score + score, self.edges + 1)


@dataclass(frozen=True)
class CircuitData:
    """A circuit ready to be laid out.

    n_heads: in the layer with most. shape: what each layer has.
    edges: at most max_edges, strongest first. sent, received: totals by node over ALL edges of the circuit.
    n_in_circuit, n_scored: numbers of edges in the circuit and in the file.
    """

    n_layers: int
    n_heads: int
    shape: tuple[LayerShape, ...]
    nodes: frozenset[Name]
    edges: tuple[Edge, ...]
    sent: Mapping[str, Total]
    received: Mapping[str, Total]
    n_in_circuit: int
    n_scored: int

    @property
    def n_dropped(self) -> int:
        return self.n_in_circuit - len(self.edges)


def read_circuit(circuit: Mapping[str, Any], max_edges: int = 2000) -> CircuitData:
    """Checks a circuit.json and keeps its `max_edges` strongest edges.

    Raises ViewError naming the field at fault: a missing part, a name outside the model, a score that is no finite number.
    """
    if max_edges < 1:
        raise ViewError(f"max_edges is {max_edges}; wanted at least 1.")
    cfg, scores = _part(circuit, "cfg"), _part(circuit, "edges")
    edges = _ranked((name, entry) for name, entry in scores.items() if _entry(name, entry).get("in_graph", True))
    split = any(edge.reader.kind == "head" and edge.reader.port in ("k", "v") for edge in edges)
    shape = read_shape(cfg, ungrouped=split)
    nodes = _nodes(_part(circuit, "nodes"), edges)
    for name in (*nodes, *(edge.reader for edge in edges)):
        _check_inside(name, shape)
    edges = [replace(edge, reader=_own(edge.reader, shape)) for edge in edges]
    nodes = frozenset(_own(name, shape) for name in nodes)
    return CircuitData(
        n_layers=len(shape),
        n_heads=max(layer.n_heads for layer in shape),
        shape=shape,
        nodes=nodes,
        edges=tuple(edges[:max_edges]),
        sent=_totals((edge.writer.node, edge.score) for edge in edges),
        received=_totals((edge.reader.node, edge.score) for edge in edges),
        n_in_circuit=len(edges),
        n_scored=len(scores),
    )


def _part(circuit: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = circuit.get(field)
    if not isinstance(value, Mapping):
        raise ViewError(f"circuit[{field!r}] is {type(value).__name__}; wanted the {field} object of a circuit.json.")
    return value


def _entry(name: str, entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise ViewError(f"edge or node {name!r} is {entry!r}; wanted an object with in_graph and score.")
    return entry


def _ranked(entries: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Edge]:
    scored = []
    for name, entry in entries:
        score = finite(entry.get("score"), f"the score of edge {name!r}")
        if score is None:
            raise ViewError(f"the score of edge {name!r} is {entry.get('score')!r}; wanted a finite number.")
        scored.append((name, score))
    scored.sort(key=lambda item: (-abs(item[1]), item[0]))
    return [Edge(*parse_edge(name), score, rank) for rank, (name, score) in enumerate(scored, start=1)]


def _nodes(entries: Mapping[str, Any], edges: Iterable[Edge]) -> frozenset[Name]:
    """Nodes marked as in the circuit, and the ends of its edges whether marked or not."""
    named = {parse_name(name) for name, entry in entries.items() if _entry(name, entry).get("in_graph", True)}
    ends = {parse_name(end.node) for edge in edges for end in (edge.writer, edge.reader)}
    return frozenset(name for name in named | ends if not name.port)


def _own(name: Name, shape: tuple[LayerShape, ...]) -> Name:
    """The head itself where its key/value group has no other member."""
    return replace(name, kind="head") if name.kind == "group" and not shape[name.layer].groups else name


def _check_inside(name: Name, shape: tuple[LayerShape, ...]) -> None:
    if name.layer < len(shape) and (name.layer < 0 or shape[name.layer].holds(name)):
        return
    layer = f"a layer with {shape[name.layer]}" if name.layer < len(shape) else f"{len(shape)} layers"
    raise ViewError(f"circuit names {name.node!r}, outside the model of cfg: {layer}.")


def _totals(pairs: Iterable[tuple[str, float]]) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for node, score in pairs:
        totals[node] = totals.get(node, Total()).plus(score)
    return totals
