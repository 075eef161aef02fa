"""circuit.json: the schema of the Mechanistic Interpretability Benchmark (Mueller et al. 2025, arXiv 2504.13151), with a record.

    {"cfg": {"n_layers", "n_heads", "parallel_attn_mlp", "d_model", "n_kv_heads", "attn_only"},
     "nodes": {"a0.h3": {"in_graph"}}, "edges": {"a0.h3->a1.g0<k>": {"score", "in_graph"}},
     "method", "metric", "difference", "ungrouped", "n_pairs", ...}

All edges of the graph are listed, in the circuit or not, with signed scores. The last two `cfg` entries and the record are
additions; files without them are read as those of a model whose query heads each have their own key and value. Where layers
differ, or read otherwise, `cfg` holds "layers" too: each layer's heads, and by kind the heads that each of its readers feeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..circuits import Circuit, CircuitError, EdgeScores, Graph
from ..run import read_json, write_text
from .scored import ScoredCircuit, graph_layers, graph_of_layers, joined, rebuilt


def to_mib(scores: EdgeScores, circuit: Circuit | None = None) -> dict[str, Any]:
    """The circuit.json of a circuit, by default of all edges."""
    both, graph = joined(scores, circuit), scores.graph
    record = scores.record.to_dict()
    names = graph.edge_names()
    values = scores.values.cpu()[graph.allowed].tolist()
    kept = both.circuit.mask[graph.allowed].tolist()
    nodes = set(both.circuit.nodes)
    return {
        "cfg": {
            "n_layers": graph.n_layers,
            "n_heads": graph.n_heads,
            "parallel_attn_mlp": graph.parallel,
            "d_model": record.pop("d_model"),
            "n_kv_heads": graph.n_kv_heads,
            "attn_only": graph.attn_only,
            **graph_layers(graph),
        },
        "nodes": {name: {"in_graph": name in nodes} for name in [port.name for port in graph.writers] + ["logits"]},
        "edges": {
            name: {"score": score, "in_graph": in_graph} for name, score, in_graph in zip(names, values, kept, strict=True)
        },
        **record,
        "how": both.circuit.how,
        "score_dtype": str(scores.values.dtype).removeprefix("torch."),
    }


def write_mib(path: str | Path, scores: EdgeScores, circuit: Circuit | None = None) -> Path:
    """Write circuit.json in one step."""
    return write_text(path, json.dumps(to_mib(scores, circuit), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def from_mib(data: Mapping[str, Any]) -> ScoredCircuit:
    """Scores and circuit of a circuit.json; what `to_mib` wrote comes back bit for bit.

    Edges without a score get 0. Raises CircuitError for missing parts and for edges that the graph does not have.
    """
    edges = _part(data, "edges")
    graph = _graph(_part(data, "cfg"), edges)
    dtype = getattr(torch, str(data.get("score_dtype", "float64")), torch.float64)
    entries = ((name, _score(name, entry), bool(entry.get("in_graph", False))) for name, entry in edges.items())
    record = {**data, "d_model": data["cfg"].get("d_model")}
    return rebuilt(graph, entries, record, dtype)


def read_mib(path: str | Path) -> ScoredCircuit:
    """`from_mib` of a file. Raises CircuitError when there is none or it is not JSON."""
    return from_mib(read_json(path, "circuit file", CircuitError))


def _part(data: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    part = data.get(field) if isinstance(data, Mapping) else None
    if not isinstance(part, Mapping):
        raise CircuitError(f"a circuit.json must hold an object '{field}', got {type(part).__name__}.")
    return part


def _graph(cfg: Mapping[str, Any], edges: Mapping[str, Any]) -> Graph:
    if "layers" in cfg:
        return graph_of_layers(cfg["layers"])
    try:
        n_heads = int(cfg["n_heads"])
        attn_only = bool(cfg.get("attn_only", not any("->m" in name for name in edges)))
        return Graph(
            int(cfg["n_layers"]), n_heads, int(cfg.get("n_kv_heads") or n_heads), bool(cfg.get("parallel_attn_mlp")), attn_only
        )
    except KeyError as error:
        raise CircuitError(f"the cfg of a circuit.json must give n_layers and n_heads, but lacks {error}.") from None


def _score(name: str, entry: Any) -> float:
    score = entry.get("score", 0.0) if isinstance(entry, Mapping) else None
    if not isinstance(score, int | float):
        raise CircuitError(f"edge '{name}' of a circuit.json must be an object with a number 'score', got {entry!r}.")
    return float(score)
