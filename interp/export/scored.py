"""Scores with a circuit chosen from them: what every exporter takes and every importer gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from ..circuits import Circuit, CircuitError, EdgeScores, Graph, Layer, ScoreRecord


@dataclass(frozen=True, eq=False)
class ScoredCircuit:
    """Edge scores and the circuit selected by them, on the same graph."""

    scores: EdgeScores
    circuit: Circuit

    def __post_init__(self) -> None:
        if self.scores.graph != self.circuit.graph:
            raise CircuitError(f"scores are on {self.scores.graph}, but the circuit is on {self.circuit.graph}.")

    def edges(self) -> list[tuple[int, int, float]]:
        """(writer, reader, score) of every edge in the circuit."""
        kept = self.circuit.mask.nonzero().tolist()
        return [(writer, reader, score) for (writer, reader), score in zip(kept, self._kept_scores(), strict=True)]

    def _kept_scores(self) -> list[float]:
        return self.scores.values[self.circuit.mask.to(self.scores.values.device)].tolist()


def joined(scores: EdgeScores, circuit: Circuit | None) -> ScoredCircuit:
    """Scores with a circuit, or with all edges where none is given."""
    return ScoredCircuit(scores, Circuit.full(scores.graph) if circuit is None else circuit)


def graph_layers(graph: Graph) -> dict[str, Any]:
    """{"layers": ...} as plain data, or nothing for a graph of equal layers of attention, which its sizes describe."""
    return {} if graph.is_uniform else {"layers": [layer.to_dict() for layer in graph.layers]}


def graph_of_layers(layers: Any) -> Graph:
    """The graph of what `graph_layers` gave. Raises CircuitError for anything else."""
    if not isinstance(layers, list | tuple):
        raise CircuitError(f"the layers of a circuit file must be a list, got {type(layers).__name__}.")
    return Graph.of_layers(Layer.from_dict(layer) for layer in layers)


def rebuilt(
    graph: Graph, edges: Iterable[tuple[str, float, bool]], record: Mapping[str, Any], dtype: torch.dtype = torch.float64
) -> ScoredCircuit:
    """From named edges (name, score, in circuit). Edges not named score 0 and are left out. Raises CircuitError on a bad name."""
    values = torch.zeros(len(graph.writers), len(graph.readers), dtype=dtype)
    mask = torch.zeros_like(graph.allowed)
    for name, score, kept in edges:
        index = graph.edge(name)
        values[index] = score
        mask[index] = kept
    return ScoredCircuit(EdgeScores(graph, values, record_from(record)), Circuit(graph, mask, str(record.get("how", "imported"))))


def record_from(data: Mapping[str, Any]) -> ScoreRecord:
    """A record from the fields that it knows; others are ignored."""
    return ScoreRecord(**{field.name: data[field.name] for field in fields(ScoreRecord) if field.name in data})
