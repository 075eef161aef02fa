"""circuit.graphml: the DiGraph of `networkx_graph` as GraphML, which Gephi, Cytoscape, yEd and igraph open."""

from __future__ import annotations

import io
from pathlib import Path

from ..circuits import Circuit, CircuitError, EdgeScores
from ..run import write_text
from .networkx_graph import from_networkx, to_networkx
from .scored import ScoredCircuit


def to_graphml(scores: EdgeScores, circuit: Circuit | None = None) -> str:
    """GraphML text of the circuit's edges, by default all."""
    import networkx

    buffer = io.BytesIO()
    networkx.write_graphml_xml(to_networkx(scores, circuit), buffer, prettyprint=True)
    return buffer.getvalue().decode("utf-8")


def write_graphml(path: str | Path, scores: EdgeScores, circuit: Circuit | None = None) -> Path:
    """Write GraphML in one step."""
    return write_text(path, to_graphml(scores, circuit))


def read_graphml(path: str | Path) -> ScoredCircuit:
    """Scores and circuit of a file that `write_graphml` wrote. Raises CircuitError when it cannot be read."""
    import networkx

    try:
        graph = networkx.read_graphml(path)
    except (OSError, SyntaxError, networkx.NetworkXError) as error:
        raise CircuitError(f"circuit file {path} cannot be read as GraphML: {error}.") from None
    return from_networkx(graph)
