"""A circuit as a networkx DiGraph.

Nodes are writers and readers, so that the q, k and v edges between two heads stay apart: `a0.h3 -> a1.g0<k> -> a1.h0, a1.h1`.
Edges of kind "q", "k", "v", "x", "mlp" and "logits" carry scores; edges of kind "part" lead from an attention reader to the
circuit's heads that it feeds, and hold no score. An MLP is one node. Paths from "input" to "logits" are those of the circuit.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..circuits import Circuit, CircuitError, EdgeScores, Graph
from ..circuits.layers import KINDS
from .scored import ScoredCircuit, graph_layers, graph_of_layers, joined, rebuilt

if TYPE_CHECKING:
    import networkx

_SIZES = ("n_layers", "n_heads", "n_kv_heads", "parallel", "attn_only")


def to_networkx(scores: EdgeScores, circuit: Circuit | None = None) -> networkx.DiGraph:
    """The circuit's edges, by default all.

    Node attributes: kind ("input", "head", "mlp", "q", "k", "v", "x", "logits"), layer, index. Edge attributes: kind, and score
    on all but "part" edges. Graph attributes: the graph's sizes, the record as JSON text, and so the layers where they differ.
    All are plain strings and numbers.
    """
    import networkx

    both, graph = joined(scores, circuit), scores.graph
    result = networkx.DiGraph(record=json.dumps({**scores.record.to_dict(), "how": both.circuit.how}, allow_nan=False))
    result.graph.update(graph.sizes | {name: json.dumps(layers) for name, layers in graph_layers(graph).items()})
    for writer, reader, score in both.edges():
        source, target = graph.writers[writer], graph.readers[reader]
        for port in (source, target):
            result.add_node(port.name, kind=port.kind, layer=port.layer, index=port.index)
        result.add_edge(source.name, target.name, kind=target.kind, score=score)
    _add_parts(result, graph, set(both.circuit.nodes))
    return result


def _add_parts(result: networkx.DiGraph, graph: Graph, nodes: set[str]) -> None:
    """Join attention readers to the heads of the circuit that they feed."""
    feeds = graph.feeds
    for row, reader in enumerate(graph.readers):
        if reader.kind in KINDS and reader.name in result:
            for port in (graph.writers[writer] for writer in feeds[row].nonzero()[:, 0].tolist()):
                if port.name in nodes:
                    result.add_node(port.name, kind=port.kind, layer=port.layer, index=port.index)
                    result.add_edge(reader.name, port.name, kind="part")


def from_networkx(source: networkx.DiGraph) -> ScoredCircuit:
    """Scores and circuit of a DiGraph that `to_networkx` made, also after a file format. Edges it lacks score 0."""
    missing = [name for name in (*_SIZES, "record") if name not in source.graph]
    if missing:
        raise CircuitError(
            f"the networkx graph lacks the attributes {', '.join(missing)}; only those of to_networkx can be read."
        )
    if "layers" in source.graph:
        graph = graph_of_layers(json.loads(source.graph["layers"]))
    else:
        sizes: dict[str, Any] = {name: int(source.graph[name]) for name in _SIZES[:3]}
        graph = Graph(**sizes, parallel=bool(source.graph["parallel"]), attn_only=bool(source.graph["attn_only"]))
    scored = ((f"{a}->{b}", float(data["score"]), True) for a, b, data in source.edges(data=True) if data["kind"] != "part")
    return rebuilt(graph, scored, json.loads(source.graph["record"]))
