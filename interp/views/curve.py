"""Line charts drawn without a plotting library: faithfulness against circuit size, training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .axes import Axis, fit_axis, tick_text, ticks
from .page import Fragment, ViewError, finite, json_block, rounded

ASSETS = ("curve.css", "curve.js")
WIDTH, HEIGHT = 680.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 18.0, 14.0, 48.0
SHAPES = ("circle", "square", "triangle", "diamond", "circle", "square")
MOST_MARKS = 60
"""Points a line may have and still mark each one."""

Number = int | float
Numbers = Sequence[Number | None]
Lines = Mapping[str, list[tuple[float, float]]]


def curve_fragment(
    xs: Sequence[Number],
    ys: Numbers | Mapping[str, Numbers],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    log_x: bool = False,
    log_y: bool = False,
    y_range: tuple[Number, Number] | None = None,
    levels: Mapping[str, Number] | None = None,
) -> Fragment:
    """A chart of one or more lines over the same xs, to place in a page.

    ys: values (None where undefined), or a mapping from the name of a line to its values. levels: horizontal lines to
    compare with, such as {"whole model": 1.0}. On a logarithmic axis values of 0 or less have no place: such points are left
    out and counted below the chart. Raises ViewError where lengths differ or nothing is left to draw.
    """
    lines = dict(ys) if isinstance(ys, Mapping) else {y_label: ys}
    finite_points = {name: _points(xs, values, name) for name, values in lines.items()}
    points = {
        name: [(x, y) for x, y in line if (x > 0 or not log_x) and (y > 0 or not log_y)] for name, line in finite_points.items()
    }
    drawn = [point for line in points.values() for point in line]
    if not drawn:
        raise ViewError(f"chart {title or y_label!r} has no point to draw; wanted a finite x and y, above 0 on a log axis.")
    compared = {name: float(level) for name, level in (levels or {}).items() if level > 0 or not log_y}
    heights = [y for _, y in drawn] + list(compared.values())
    x_axis = fit_axis(x_label, [x for x, _ in drawn], (LEFT, WIDTH - RIGHT), log_x)
    y_axis = fit_axis(y_label, heights, (HEIGHT - BOTTOM, TOP), log_y, y_range)
    caption = f"<figcaption>{escape(title)}</figcaption>" if title else ""
    html = (
        f'<figure class="curve" data-view="curve">{json_block(_payload(points, x_axis, y_axis))}{caption}{_legend(points)}'
        f"{_svg(points, (x_axis, y_axis), compared, title or y_label)}"
        f"{_note(sum(map(len, finite_points.values())) - len(drawn))}</figure>"
    )
    return Fragment(html, ASSETS, title or y_label, height=420)


def _points(xs: Sequence[Number], ys: Numbers, name: str) -> list[tuple[float, float]]:
    """The points with two finite coordinates."""
    if len(xs) != len(ys):
        raise ViewError(f"line {name!r} has {len(ys)} values for {len(xs)} xs; wanted one value, or None, for each x.")
    pairs = ((finite(x, f"an x of line {name!r}"), finite(y, f"a value of line {name!r}")) for x, y in zip(xs, ys, strict=True))
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _note(left_out: int) -> str:
    if not left_out:
        return ""
    words = "1 point at 0 or below is" if left_out == 1 else f"{left_out} points at 0 or below are"
    return f'<p class="curve-note">{words} not shown: a logarithmic axis has no place for them.</p>'


def _svg(points: Lines, axes: tuple[Axis, Axis], levels: Mapping[str, float], title: str) -> str:
    x_axis, y_axis = axes
    label = escape(f"{title}: {y_axis.label} against {x_axis.label}. Left and right arrows read the points.")
    lines = "".join(_line(index, line, x_axis, y_axis) for index, line in enumerate(points.values()))
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" tabindex="0" role="img" aria-label="{label}">'
        f"{_grid(x_axis, y_axis)}{_levels(levels, y_axis)}{lines}"
        '<g class="cursor" data-cursor></g></svg>'
    )


def _grid(x_axis: Axis, y_axis: Axis) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    across = "".join(
        f'<path class="grid" d="M{LEFT:g} {y_axis.place(v):.1f}H{right:g}"/>'
        f'<text class="tick y" x="{LEFT - 8:g}" y="{y_axis.place(v):.1f}">{tick_text(v)}</text>'
        for v in ticks(y_axis)
    )
    along = "".join(
        f'<path class="axis" d="M{x_axis.place(v):.1f} {bottom:g}v5"/>'
        f'<text class="tick x" x="{x_axis.place(v):.1f}" y="{bottom + 17:g}">{tick_text(v)}</text>'
        for v in ticks(x_axis)
    )
    return (
        f'{across}<path class="axis" d="M{LEFT:g} {bottom:g}H{right:g}"/>{along}'
        f'<text class="axis-label" x="{(LEFT + right) / 2:g}" y="{HEIGHT - 9:g}">{_name(x_axis)}</text>'
        f'<text class="axis-label" transform="translate(15 {(TOP + bottom) / 2:g}) rotate(-90)">{_name(y_axis)}</text>'
    )


def _name(axis: Axis) -> str:
    return escape(f"{axis.label} (log scale)" if axis.log else axis.label)


def _levels(levels: Mapping[str, float], y_axis: Axis) -> str:
    return "".join(
        f'<path class="level" d="M{LEFT:g} {y_axis.place(v):.1f}H{WIDTH - RIGHT:g}"/>'
        f'<text class="level-label" x="{WIDTH - RIGHT - 4:g}" y="{y_axis.place(v) - 5:.1f}">{escape(name)}</text>'
        for name, v in levels.items()
        if y_axis.low <= v <= y_axis.high
    )


def _line(index: int, line: list[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in line]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    marks = "".join(_mark(SHAPES[index % 6], x, y) for x, y in places) if len(places) <= MOST_MARKS else ""
    return f'<g class="series s{index % 6}"><path class="line" d="M{path}"/>{marks}</g>' if places else ""


def _mark(shape: str, x: float, y: float) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
    outline = {"square": "m-3-3h6v6h-6z", "triangle": "m0-4.2l4 7h-8z", "diamond": "m0-4.4l4 4.4l-4 4.4l-4-4.4z"}[shape]
    return f'<path class="mark" d="M{x:.1f} {y:.1f}{outline}"/>'


def _legend(points: Mapping[str, Any]) -> str:
    if len(points) < 2:
        return ""
    keys = "".join(
        f'<span class="key series s{index % 6}"><svg viewBox="0 0 34 12" aria-hidden="true"><path class="line" d="M1 6H33"/>'
        f"{_mark(SHAPES[index % 6], 17.0, 6.0)}</svg>{escape(name)}</span>"
        for index, name in enumerate(points)
    )
    return f'<div class="curve-legend">{keys}</div>'


def _payload(points: Lines, x_axis: Axis, y_axis: Axis) -> dict[str, Any]:
    """Every x with a point, its place, and the lines' values and places there."""
    xs = sorted({x for line in points.values() for x, _ in line})
    at = [dict(line) for line in points.values()]
    return {
        "x": x_axis.label,
        "names": list(points),
        "points": [
            [rounded(x), round(x_axis.place(x), 1)]
            + [[rounded(line[x]), round(y_axis.place(line[x]), 1)] if x in line else None for line in at]
            for x in xs
        ],
    }
