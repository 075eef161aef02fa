"""A map of all heads, layer by head, coloured by one score at a time; hover for every number of a head."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from .colour import ramp
from .page import Fragment, ViewError, attributes, json_block, page_html
from .scores import Heads, Score, compact, read_heads

ASSETS = ("head_map.css", "head_map.js")


def head_map_html(heads: Mapping[str, Any], *, title: str, score: str | None = None) -> str:
    """A page with the map of a heads.json alone; `score` names the one shown first (induction, or the first there is)."""
    return page_html(title, [head_map_fragment(heads, score=score, title=title)], body_class="padded")


def head_map_fragment(heads: Mapping[str, Any], *, score: str | None = None, title: str = "Head map") -> Fragment:
    """The map, to place in a page. A click on a head leads to its row where the page also has the table.

    Raises ViewError for a heads.json that contradicts itself, and for a `score` no head has.
    """
    data = read_heads(heads)
    keys = [item.key for item in data.scores]
    if score is not None and score not in keys:
        raise ViewError(f"score is {score!r}, which no head has; wanted one of {', '.join(keys) or 'none: there are no scores'}.")
    first = score or (keys[0] if keys else "")
    options = "".join(
        f"<option{attributes({'value': item.key, 'selected': item.key == first})}>{escape(item.title)}</option>"
        for item in data.scores
    )
    html = (
        f'<section class="head-map" data-view="head_map" aria-label="{escape(title)}">{json_block(_payload(data))}'
        '<div class="controls"><label class="field"><span>Colour by</span>'
        f'<select data-score>{options}</select></label><div class="map-roles" data-roles></div></div>'
        '<div class="map-body"><div class="map-frame" data-frame></div>'
        '<aside class="map-side"><p class="meaning" data-meaning></p><div class="scale" data-scale></div>'
        "<h3>Highest</h3><ol data-top></ol></aside></div></section>"
    )
    height = min(max(data.n_layers * 22 + 150, 380), 900)
    return Fragment(html, ASSETS, title, height)


def _payload(data: Heads) -> dict[str, Any]:
    return {
        "layers": data.n_layers,
        "heads": data.n_heads,
        "scores": [_score(score, data) for score in data.scores],
        "labels": {f"{row.layer}.{row.head}": [[x.text, x.role] for x in row.labels] for row in data.rows if row.labels},
        "ramps": {"light": ramp(dark=False), "dark": ramp(dark=True)},
    }


def _score(score: Score, data: Heads) -> dict[str, Any]:
    """One score with its values by layer and head, null where there is none."""
    values: list[list[float | None]] = [[None] * data.n_heads for _ in range(data.n_layers)]
    for row in data.rows:
        values[row.layer][row.head] = compact(row.values.get(score.key))
    low, high, clipped = colour_range(score, [value for line in values for value in line if value is not None])
    return {
        "key": score.key,
        "title": score.title,
        "unit": score.unit,
        "meaning": score.meaning,
        "range": [low, high],
        "clipped": clipped,
        "values": values,
    }


def colour_range(score: Score, values: list[float]) -> tuple[float, float, bool]:
    """The values at both ends of the colours, and whether larger ones exist.

    [0, 1] where the score is defined on it; else from 0 (or the least) to the largest value, or to the 98th percentile
    where a few outliers beyond 1.5 times that would wash out all others.
    """
    if score.unit_range or not values:
        return 0.0, 1.0, False
    ordered = sorted(values)
    low, high = min(0.0, ordered[0]), ordered[-1]
    typical = ordered[int(0.98 * (len(ordered) - 1))]
    if high > 1.5 * typical > 0:
        return low, typical, True
    return low, high if high > low else low + 1.0, False
