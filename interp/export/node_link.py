"""Node-link JSON, as networkx and d3 read it: {"nodes": [{"id"}], "edges": [{"source", "target", "score"}]}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..circuits import Circuit, CircuitError, EdgeScores
from ..run import read_json, write_text
from .networkx_graph import from_networkx, to_networkx
from .scored import ScoredCircuit


def to_node_link(scores: EdgeScores, circuit: Circuit | None = None) -> dict[str, Any]:
    """The DiGraph of `to_networkx` as plain data."""
    import networkx

    return networkx.node_link_data(to_networkx(scores, circuit), edges="edges")


def write_node_link(path: str | Path, scores: EdgeScores, circuit: Circuit | None = None) -> Path:
    """Write node-link JSON in one step."""
    return write_text(path, json.dumps(to_node_link(scores, circuit), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def from_node_link(data: Mapping[str, Any]) -> ScoredCircuit:
    """Scores and circuit of node-link data. Raises CircuitError when it is none."""
    import networkx

    try:
        return from_networkx(networkx.node_link_graph(data, edges="edges"))
    except (KeyError, TypeError, AttributeError) as error:
        raise CircuitError(f"node-link data must have 'nodes' and 'edges' as to_node_link writes them: {error!r}.") from None


def read_node_link(path: str | Path) -> ScoredCircuit:
    """`from_node_link` of a file."""
    return from_node_link(read_json(path, "circuit file", CircuitError))
