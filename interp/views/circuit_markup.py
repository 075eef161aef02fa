"""The fixed parts of a circuit view: controls, drawing surface, side panel, legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .circuit_data import CircuitData

_KINDS = (("q", "query"), ("k", "key"), ("v", "value"), ("x", "whole mixer"), ("mlp", "MLP"), ("logits", "logits"))


def body_markup(circuit: Mapping[str, Any], data: CircuitData, facts: Sequence[tuple[str, str]]) -> str:
    """Everything inside the section but its data."""
    return (
        f"{_facts(facts)}{_dropped(data)}{_controls(data)}"
        f'<div class="circuit-body">{_stage()}<aside class="panel" aria-label="Details">'
        f'<div class="detail" data-detail></div>{_legend(circuit, data)}</aside></div>'
    )


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{items}</dl>'


def _dropped(data: CircuitData) -> str:
    if not data.n_dropped:
        return ""
    return (
        f'<p class="note" data-dropped>The {data.n_dropped:,} weakest of the circuit\'s {data.n_in_circuit:,} edges are not in '
        f"this page, which holds the {len(data.edges):,} strongest. Totals of nodes count all of them.</p>"
    )


def _controls(data: CircuitData) -> str:
    n = len(data.edges)
    disabled = " disabled" if n < 2 else ""
    slider = (
        '<label class="field grow"><span>Edges</span>'
        f'<input type="range" data-slider min="0" max="1000" value="1000" step="1" aria-label="How many edges to show"{disabled}>'
        f'<input type="number" data-number min="{min(n, 1)}" max="{n}" value="{n}" aria-label="Number of edges"{disabled}>'
        "</label>"
        '<output class="count" data-count aria-live="polite"></output>'
    )
    signs = "".join(
        f'<button type="button" data-sign="{sign}" title="{words}" aria-label="{words}" '
        f'aria-pressed="{"true" if sign == "all" else "false"}">{text}</button>'
        for sign, text, words in (("all", "±", "Both signs"), ("pos", "+", "Positive only"), ("neg", "−", "Negative only"))
    )
    kinds = "".join(
        f'<button type="button" data-kind="{kind}" aria-pressed="true" title="Edges into {words}">{kind}</button>'
        for kind, words in _KINDS
        if _has_kind(data, kind)
    )
    return (
        f'<div class="controls" role="group" aria-label="What is shown">{slider}'
        f'<div class="segments" role="group" aria-label="Sign">{signs}</div>'
        f'<div class="segments" role="group" aria-label="Edges into">{kinds}</div>'
        '<label class="field"><span class="sr-only">Search</span><input type="search" data-search '
        'placeholder="Find L18H6, induction" autocomplete="off" spellcheck="false"></label>'
        '<label class="check" title="Hide nodes without a shown edge"><input type="checkbox" data-hide> hide idle</label>'
        '<button type="button" class="button" data-reset title="Everything back to the start">Reset</button>'
        '<button type="button" class="button" data-export title="Save what is shown as an SVG file">Export SVG</button></div>'
    )


def _has_kind(data: CircuitData, kind: str) -> bool:
    return any((edge.reader.port or edge.reader.kind) == kind for edge in data.edges)


def _stage() -> str:
    buttons = (
        ("in", "+", "Zoom in (+)"),
        ("out", "−", "Zoom out (−)"),
        ("fit", "Fit", "Show everything (0)"),
        ("full", "⤢", "Full screen"),
    )
    zooms = "".join(
        f'<button type="button" class="button" data-zoom="{act}" title="{title}" aria-label="{title}">{text}</button>'
        for act, text, title in buttons
    )
    return (
        '<div class="stage" data-stage><canvas aria-hidden="true"></canvas>'
        '<svg class="nodes" role="group" aria-label="Nodes of the circuit; arrow keys move between them"><g></g></svg>'
        '<div class="gutter" aria-hidden="true"></div>'
        f'<div class="zooms">{zooms}</div><div class="hint" data-hint></div></div>'
    )


def _legend(circuit: Mapping[str, Any], data: CircuitData) -> str:
    up, down = _meaning(str(circuit.get("difference", "")))
    return (
        '<details class="legend" open><summary>Legend</summary><div class="legend-grid">'
        f"{_sample('pos')}<span><b>positive</b>: {up}</span>{_sample('neg')}<span><b>negative</b>: {down}</span>"
        '<span class="widths" data-widths></span><span>width grows with |score|; rank 1 is the strongest</span>'
        f'<span class="port-sample"><i>q</i><i>k</i><i>v</i></span><span>{_readers(data)}</span>'
        '<span class="unused-sample"></span><span>a head outside the circuit</span>'
        '</div><div class="roles" data-roles></div><p class="keys"><kbd>click</kbd> isolates a node, <kbd>arrows</kbd> move '
        "between nodes, <kbd>Enter</kbd> isolates, <kbd>Esc</kbd> clears, <kbd>+</kbd> <kbd>−</kbd> <kbd>0</kbd> zoom, "
        "<kbd>/</kbd> searches</p></details>"
    )


def _readers(data: CircuitData) -> str:
    """What the letters under the boxes are, in the kinds of layers that the model has."""
    words = []
    for shape in dict.fromkeys(data.shape):
        size = max((len(heads) for heads in shape.groups), default=1)
        if shape.is_whole:
            words.append("x: the one reader of a mixer, drawn as one strip under all its heads")
        elif size > 1:
            words.append(f"q belongs to one head; k and v to a group of {size} heads, drawn as one strip under them")
        else:
            words.append("the three readers of a head: query, key, value")
    return "; ".join(dict.fromkeys(words))


def _meaning(difference: str) -> tuple[str, str]:
    if difference.replace(" ", "") == "corrupt-clean":
        return "corrupting the edge raises the metric", "corrupting the edge lowers the metric"
    return "score above 0", "score below 0"


def _sample(sign: str) -> str:
    end = '<path d="M46 2l8 5l-8 5z"/>' if sign == "pos" else '<path class="line" d="M53 2v10"/>'
    return f'<svg class="sample {sign}" viewBox="0 0 56 14" aria-hidden="true"><path class="line body" d="M2 7h45"/>{end}</svg>'
