"""circuit.dot: text that any Graphviz draws, layers from bottom to top. Writing it needs no Graphviz.

Blue edges have positive scores (corrupting them raises the metric), orange ones negative; width follows magnitude. Queries are
solid, keys dashed, values dotted, edges into MLPs, logits and whole mixers solid. A key/value head shared by a group, and a
mixer with one reader, is a small box that points to the heads it serves.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..circuits import Circuit, EdgeScores, Graph
from ..circuits.circuit import node_names
from ..circuits.layers import KINDS
from ..run import write_text
from .scored import ScoredCircuit, joined

# Blue and orange, which colour-blind readers tell apart: those of the circuit page.
POSITIVE, NEGATIVE, NEUTRAL = "#1769b5", "#c75300", "#8c8c8c"
STYLES = {"q": "solid", "k": "dashed", "v": "dotted", "x": "solid", "mlp": "solid", "logits": "solid"}
WIDEST = 6.0
"""Points of the edge with the largest magnitude."""


def to_dot(scores: EdgeScores, circuit: Circuit | None = None) -> str:
    """DOT text of the circuit's edges, by default all."""
    both = joined(scores, circuit)
    lines = [
        "digraph circuit {",
        '  rankdir=BT; ranksep=0.6; nodesep=0.15; fontname="Helvetica";',
        f"  label={_quoted(_caption(both))};",
        '  node [fontname="Helvetica", fontsize=11, style="rounded,filled", shape=box, fillcolor="#f5f5f5", color="#777777"];',
        "  edge [arrowsize=0.6];",
        *_nodes(both),
        *_edges(both),
        *_parts(both),
        "}",
    ]
    return "\n".join(lines) + "\n"


def write_dot(path: str | Path, scores: EdgeScores, circuit: Circuit | None = None) -> Path:
    """Write DOT text in one step."""
    return write_text(path, to_dot(scores, circuit))


def _nodes(both: ScoredCircuit) -> Iterable[str]:
    """One rank per sublayer, kept in order by invisible edges: input, a layer's KV groups (or mixer), heads, MLP, ..., logits."""
    present = set(both.circuit.nodes)
    ranks: dict[str, list[str]] = {}
    for name in (name for name in node_names(both.scores.graph) if name in present):
        ranks.setdefault(_rank(name), []).append(name)
    for names in ranks.values():
        nodes = " ".join(f"{_quoted(name)} [{_look(name)}];" for name in names)
        yield f"  {{ rank=same; {nodes} }}"
    first = [names[0] for names in ranks.values()]
    for below, above in zip(first[:-1], first[1:], strict=True):
        yield f"  {_quoted(below)} -> {_quoted(above)} [style=invis];"


def _rank(name: str) -> str:
    layer, dot, inside = name.partition(".")
    return f"{layer}{dot}{inside[:1]}"


def _look(name: str) -> str:
    if ".g" in name:
        return f'label={_quoted(name.replace(".g", " KV"))}, fontsize=9, shape=box, style="filled", fillcolor="#e8e8e8"'
    if name.startswith("a") and "." not in name:
        return f'label={_quoted(f"mixer {name[1:]}")}, fontsize=9, shape=box, style="filled", fillcolor="#e8e8e8"'
    if name.startswith("m"):
        return f"label={_quoted(f'MLP {name[1:]}')}"
    if name.startswith("a"):
        layer, head = name[1:].split(".h")
        return f'label={_quoted(f"{layer}.{head}")}, shape=ellipse, style="filled"'
    return f"label={_quoted(name)}"


def _edges(both: ScoredCircuit) -> Iterable[str]:
    graph = both.scores.graph
    edges = both.edges()
    largest = max((abs(score) for _, _, score in edges), default=0.0) or 1.0
    for writer, reader, score in edges:
        source, target = graph.writers[writer], graph.readers[reader]
        colour = POSITIVE if score > 0 else NEGATIVE if score < 0 else NEUTRAL
        width = max(0.3, WIDEST * abs(score) / largest)
        tip = f"{source.name}->{target.name}: {score:+.4g}"
        yield (
            f"  {_quoted(source.name)} -> {_quoted(graph.head_of(target))} "
            f'[color="{colour}", style={STYLES[target.kind]}, penwidth={width:.2f}, tooltip={_quoted(tip)}];'
        )


def _parts(both: ScoredCircuit) -> Iterable[str]:
    graph: Graph = both.scores.graph
    nodes = set(both.circuit.nodes)
    fed: dict[str, dict[str, None]] = {}
    for row, reader in enumerate(graph.readers):
        name = graph.head_of(reader)
        if reader.kind in KINDS and name in nodes:
            heads = (graph.writers[writer].name for writer in graph.feeds[row].nonzero()[:, 0].tolist())
            fed.setdefault(name, {}).update(dict.fromkeys(head for head in heads if head in nodes and head != name))
    for name in (name for name in both.circuit.nodes if name in fed):
        for head in fed[name]:
            yield f'  "{name}" -> "{head}" [color="{NEUTRAL}", arrowhead=none, penwidth=0.7];'


def _caption(both: ScoredCircuit) -> str:
    record = both.scores.record
    return (
        f"{record.model} {both.circuit.n_edges} of {both.scores.graph.n_edges} edges, {record.method} of {record.metric}, "
        f"{record.difference}. Blue: corrupting the edge raises the metric, orange: lowers it. Solid q, dashed k, dotted v."
    ).lstrip()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
