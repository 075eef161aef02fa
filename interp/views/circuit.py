"""A circuit to look at: layers from input to logits, signed edges, search, isolation, a slider for how many edges show.

`circuit_fragment` goes into a report, `circuit_html` is a page of its own. Geometry is made here (`circuit_layout`),
drawing and interaction in `static/circuit*.js`. At most `max_edges` edges enter the page (2,000 stay smooth and weigh
about 60 kB); the page says how many were left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from .circuit_data import CircuitData, Total, read_circuit
from .circuit_layout import Box, Layout, Port, lay_out
from .circuit_markup import body_markup
from .circuit_shape import groups_of
from .names import Name, role_class, role_of
from .page import THEME_BUTTON, Fragment, finite, json_block, page_html, rounded

ASSETS = (
    "circuit.css",
    *(f"circuit{part}.js" for part in ("_routes", "_paint", "_nodes", "_panel", "_export", "", "_input")),
)


def circuit_html(
    circuit: Mapping[str, Any],
    *,
    title: str,
    node_labels: Mapping[str, str] | None = None,
    faithfulness: Mapping[str, Any] | None = None,
    max_edges: int = 2000,
) -> str:
    """A page that shows one circuit and opens offline.

    circuit: the content of a circuit.json. node_labels: what to write on nodes, such as `{"a18.h6": "L18H6 induction
    0.90"}`. faithfulness: named numbers to print above the drawing (may be nested). Raises ViewError for a circuit that
    contradicts its own cfg.
    """
    view = circuit_fragment(
        circuit, node_labels=node_labels, faithfulness=faithfulness, max_edges=max_edges, title=title, fills_page=True
    )
    head = f'<header class="page-head"><h1>{escape(title)}</h1>{THEME_BUTTON}</header>'
    return page_html(title, [head, view], bare=True, body_class="fills")


def circuit_fragment(
    circuit: Mapping[str, Any],
    *,
    node_labels: Mapping[str, str] | None = None,
    faithfulness: Mapping[str, Any] | None = None,
    max_edges: int = 2000,
    title: str = "Circuit",
    fills_page: bool = False,
) -> Fragment:
    """The same view, to place in a page. There the wheel scrolls the page and zooms with Ctrl or Command held."""
    data = read_circuit(circuit, max_edges)
    payload = circuit_payload(data, lay_out(data), node_labels or {})
    facts = _facts(circuit, data) + _flat(faithfulness or {})
    html = (
        f'<section class="circuit" data-view="circuit" data-wheel="{"zoom" if fills_page else "ctrl"}" '
        f'aria-label="{escape(title)}">{json_block(payload)}{body_markup(circuit, data, facts)}</section>'
    )
    return Fragment(html, ASSETS, title, height=920)


def circuit_payload(data: CircuitData, layout: Layout, labels: Mapping[str, str]) -> dict[str, Any]:
    """What the scripts draw: nodes, ports and edges refer to each other by position in their lists."""
    node_at = {key: place for place, key in enumerate(layout.nodes)}
    group_at = {key: place for place, key in enumerate(layout.groups)}
    port_at = {reader: place for place, reader in enumerate(layout.ports)}
    return {
        "width": layout.width,
        "height": layout.height,
        "column": layout.column,
        "bands": [[band.layer, band.top, band.bottom, int(band.used)] for band in layout.bands],
        "unused": layout.unused,
        "nodes": [_node(name, box, data, labels, group_at) for name, box in layout.nodes.values()],
        "groups": [_group(name, box, data, node_at, layout.nodes.values()) for name, box in layout.groups.values()],
        "ports": [_port(port, node_at, group_at) for port in layout.ports.values()],
        "edges": [[node_at[e.writer.node], port_at[e.reader], rounded(e.score)] for e in data.edges],
        "inCircuit": data.n_in_circuit,
    }


def _node(name: Name, box: Box, data: CircuitData, labels: Mapping[str, str], group_at: Mapping[str, int]) -> dict[str, Any]:
    label = _label(name, labels.get(name.node, ""))
    entry = {
        "id": name.node,
        "name": name.title,
        "short": f"{name.layer}.{name.index}" if name.kind == "head" else name.node if name.kind == "mlp" else name.title,
        "kind": name.kind,
        "layer": name.layer,
        "box": _corners(box),
        "sent": _total(data.sent.get(name.node)),
        "received": _total(data.received.get(name.node)),
    }
    if label:
        entry |= {"label": label, "role": role_class(role_of(label))}
    if name.kind == "head":
        found = (group.node for group in groups_of(data.shape, name.layer, name.index))
        groups = [group_at[node] for node in found if node in group_at]
        entry |= {"groups": groups} if groups else {}
    return entry


def _label(name: Name, text: str) -> str:
    """The label without the node's own name, which the box shows anyway."""
    for own in (name.title, name.node):
        if text.startswith(own):
            text = text[len(own) :].lstrip(" :·-")
    return text


def _group(
    name: Name, box: Box, data: CircuitData, node_at: Mapping[str, int], layout_nodes: Iterable[tuple[Name, Box]]
) -> dict[str, Any]:
    heads = data.shape[name.layer].groups[name.index]
    users = [each for each, _ in layout_nodes if each.kind == "head" and name in groups_of(data.shape, each.layer, each.index)]
    return {
        "id": name.node,
        "name": name.title,
        "layer": name.layer,
        "heads": f"heads {heads[0]}–{heads[-1]}" if len(heads) > 1 else f"head {heads[0]}",
        "box": _corners(box),
        "members": [node_at[user.node] for user in users],
        "received": _total(data.received.get(name.node)),
    }


def _port(port: Port, node_at: Mapping[str, int], group_at: Mapping[str, int]) -> dict[str, Any]:
    reader = port.reader
    entry: dict[str, Any] = {"kind": reader.port or reader.kind, "box": _corners(port.box)}
    if port.shared:
        entry["group"] = group_at[reader.node]
    else:
        entry["node"] = node_at[reader.node]
    return entry


def _corners(box: Box) -> list[float]:
    return [round(value, 1) for value in (box.x, box.y, box.w, box.h)]


def _total(total: Total | None) -> list[int | float]:
    return [rounded(total.score), total.edges] if total else [0, 0]


def _facts(circuit: Mapping[str, Any], data: CircuitData) -> list[tuple[str, str]]:
    """What the circuit is and how it was found, for the line above the drawing."""
    facts = [(word, str(circuit[key])) for key, word in (("method", "method"), ("metric", "metric")) if circuit.get(key)]
    if circuit.get("difference"):
        facts.append(("scores", str(circuit["difference"]).replace("-", " − ")))
    if circuit.get("n_pairs") is not None:
        facts.append(("prompt pairs", str(circuit["n_pairs"])))
    facts.append(("edges in circuit", f"{data.n_in_circuit:,} of {data.n_scored:,} scored"))
    facts.append(("nodes", f"{len([name for name in data.nodes if name.kind not in ('group', 'mixer')]):,}"))
    sizes = sorted({len(heads) for layer in data.shape if not layer.is_whole for heads in layer.groups})
    if sizes:
        facts.append(("keys and values", f"shared by {' or '.join(map(str, sizes))} heads"))
    elif circuit.get("ungrouped"):
        facts.append(("keys and values", "ungrouped: one reader per head"))
    if whole := [layer for layer, shape in enumerate(data.shape) if shape.is_whole]:
        facts.append(("mixers with one reader", f"layers {_ranges(whole)}"))
    return facts


def _ranges(numbers: list[int]) -> str:
    """ "0–2, 4" of 0, 1, 2, 4."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested named values as one list; numbers to 3 significant digits."""
    facts: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            facts += _flat(value, f"{name}: ")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            number = finite(value, name)
            facts.append((name, "–" if number is None else f"{number:.3g}"))
        elif isinstance(value, (str, bool)) or value is None:
            facts.append((name, "–" if value is None else str(value)))
    return facts
