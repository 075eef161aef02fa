"""Heads, charts and reports as text: what they hold, what they leave out, and that no text can break out of them."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
from typing import Any

import pytest
import view_samples
from view_samples import payload

from interp.views import (
    Section,
    ViewError,
    circuit_fragment,
    circuit_html,
    curve_fragment,
    head_map_fragment,
    head_map_html,
    report_html,
    save_html,
    table_fragment,
)
from interp.views.axes import fit_axis, tick_text, ticks
from interp.views.colour import ramp
from interp.views.page import asset, json_block

HOSTILE = '</script><img src=x onerror="window.hacked=1">\'&\u2028 é 日本'


# ---- heads


def test_the_head_map_holds_every_value_and_null_where_undefined() -> None:
    heads = view_samples.heads(4, 4)
    data = payload(head_map_fragment(heads))
    scores = {score["key"]: score for score in data["scores"]}
    for row in heads["heads"]:
        for key, score in scores.items():
            shown = score["values"][row["layer"]][row["head"]]
            assert shown == (None if row[key] is None else pytest.approx(row[key], rel=1e-4))
    assert scores["induction"]["range"] == [0, 1] and scores["entropy"]["range"][1] > 1
    assert data["labels"]["1.0"] == [["induction", "role-0"]]


def test_outliers_do_not_wash_out_the_colours() -> None:
    heads = view_samples.heads(10, 10)
    heads["heads"][0]["temperature"] = 1e6
    temperature = next(s for s in payload(head_map_fragment(heads))["scores"] if s["key"] == "temperature")
    assert temperature["range"][1] < 2 and temperature["clipped"]


def test_table_rows_have_labels_with_evidence() -> None:
    data = payload(table_fragment(view_samples.heads(2, 4)))
    row = next(row for row in data["rows"] if row[:2] == [0, 3])
    assert row[2] == [["previous-token", "role-1", "puts 0.99 of its attention on the previous token token"]]
    assert data["sort"] == "induction" and [column[0] for column in data["columns"]][:2] == ["induction", "induction_min"]


def test_evidence_falls_back_on_the_heads_own_numbers() -> None:
    heads = view_samples.heads(2, 4)
    for row in heads["heads"]:
        del row["evidence"]
    row = next(row for row in payload(table_fragment(heads))["rows"] if row[:2] == [1, 0])
    assert row[2][0][2] == "induction 0.88, induction min 0.792, induction baseline 0.0329"


def test_infinite_and_unknown_numbers_are_taken() -> None:
    heads = view_samples.heads(2, 4)
    heads["heads"][0] |= {"temperature": math.inf, "my_own_score": 3.0}
    data = payload(table_fragment(heads))
    keys = [column[0] for column in data["columns"]]
    assert keys[-1] == "my_own_score"
    assert data["rows"][0][3 + keys.index("temperature")] is None and data["rows"][1][3 + keys.index("my_own_score")] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_layers": "2"}, "n_layers"),
        ({"heads": None}, "heads"),
        ({"heads": [{"layer": 5, "head": 0}]}, "layer 5"),
        ({"heads": [{"layer": 0}]}, "head None"),
        ({"heads": [7]}, "7"),
    ],
)
def test_a_damaged_heads_file_is_named(change: dict[str, Any], words: str) -> None:
    for view in (table_fragment, head_map_fragment):
        with pytest.raises(ViewError, match=words):
            view(view_samples.heads(2, 4) | change)


def test_an_unknown_score_lists_those_there_are() -> None:
    heads = view_samples.heads(2, 4)
    with pytest.raises(ViewError, match="'copying'.*induction_min"):
        head_map_fragment(heads, score="copying")
    with pytest.raises(ViewError, match="'copying'.*induction_min"):
        table_fragment(heads, sort="copying")


# ---- colours


def _oklab(colour: str) -> tuple[float, float, float]:
    """sRGB to OKLab, the other way round than the code under test."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


@pytest.mark.parametrize("dark", [False, True])
def test_colour_steps_look_equal_and_lightness_only_moves_one_way(dark: bool) -> None:
    points = [_oklab(colour) for colour in ramp(dark, 24)]
    steps = [math.dist(one, other) for one, other in itertools.pairwise(points)]
    assert max(steps) / min(steps) < 1.25
    lightness = [point[0] for point in points]
    assert lightness == sorted(lightness, reverse=not dark) and abs(lightness[-1] - lightness[0]) > 0.6


# ---- charts


def test_ticks_are_round_and_inside() -> None:
    assert ticks(fit_axis("y", [0.013, 0.98], (320.0, 0.0), log=False)) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert ticks(fit_axis("x", [1.0, 70_000.0], (0.0, 600.0), log=True)) == [1, 10, 100, 1000, 10_000]
    few = ticks(fit_axis("x", [3.0, 40.0], (0.0, 600.0), log=True))
    assert few[0] >= 3 and few[-1] <= 40 and len(few) >= 3
    assert [tick_text(value) for value in (0.0, 0.25, 12_000.0, -3.0, 1e-5, 2e6)] == ["0", "0.25", "12k", "−3", "1e−5", "2e6"]


def test_points_stand_where_their_values_say() -> None:
    fragment = curve_fragment([1, 10, 100], {"a": [0.0, None, 1.0], "b": [0, 0.5, 1]}, x_label="edges", y_label="f", log_x=True)
    data = payload(fragment)
    assert [point[0] for point in data["points"]] == [1, 10, 100]
    left, middle, right = (point[1] for point in data["points"])
    assert middle - left == pytest.approx(right - middle, abs=0.11)
    assert data["points"][1][2] is None and data["points"][1][3][0] == 0.5
    assert data["points"][0][2][1] > data["points"][2][2][1]
    assert "edges (log scale)" in fragment.html and "curve-legend" in fragment.html


def test_points_without_a_place_on_a_log_axis_are_counted() -> None:
    fragment = curve_fragment([0, 1, 10], [0.0, 0.4, 1.0], x_label="edges", y_label="f", log_x=True, levels={"whole model": 1})
    assert "1 point at 0 or below is not shown" in fragment.html and "whole model" in fragment.html
    assert "not shown" not in curve_fragment([1, 2], [math.nan, 1.0], x_label="x", y_label="y", log_x=True).html


@pytest.mark.parametrize(
    ("xs", "ys", "words"),
    [([1, 2], [1.0], "1 values for 2 xs"), ([], [], "no point"), ([1], [None], "no point"), ([math.nan], [1.0], "no point")],
)
def test_impossible_charts_are_named(xs: list[Any], ys: Any, words: str) -> None:
    with pytest.raises(ViewError, match=words):
        curve_fragment(xs, ys, x_label="x", y_label="y")


# ---- pages


def _report(text: str = "plain") -> str:
    circuit, heads = view_samples.circuit(2, 4, 2, 20), view_samples.heads(2, 4)
    heads["heads"][0]["labels"] = [text]
    sections = [
        Section(text, [f"{text}\n\nA `code` word.", {text: text, "none": None}]),
        Section("Heads", [head_map_fragment(heads, title=text), table_fragment(heads)]),
        Section("Heads", [circuit_fragment(circuit, node_labels={"a0.h1": text}, faithfulness={text: text}, title=text)]),
        Section(
            "Again", [circuit_fragment(circuit), curve_fragment([1, 2], {text: [1, 2]}, x_label=text, y_label=text, title=text)]
        ),
    ]
    return report_html(text, sections, {text: {text: [text]}, "seconds": 1.5}, summary=text)


def test_a_report_holds_each_file_once_and_its_parts_in_order() -> None:
    page = _report()
    for name in ("base.js", "circuit.js", "circuit.css", "table.js", "head_map.js", "curve.js", "report.css"):
        assert page.count(asset(name)) == 1, name
    assert re.findall(r'<section class="part" id="([^"]+)"', page) == ["plain", "heads", "heads-2", "again", "manifest"]
    assert re.findall(r'<a href="#([^"]+)"', page) == ["plain", "heads", "heads-2", "again", "manifest"]
    assert "<code>code</code>" in page and '<th scope="row">plain.plain</th>' in page
    assert page.index("base.js" if "base.js" in page else "const Atlas") < page.index("class CircuitView")


def test_no_text_breaks_out_of_a_report() -> None:
    page, plain = _report(HOSTILE), _report()
    assert "<img" not in page and 'onerror="window' not in page
    for tag in ("</script", "<script", "<section", "<div", "<style", "</style"):
        assert page.lower().count(tag) == plain.lower().count(tag), tag


def test_json_survives_escaping() -> None:
    block = json_block({"text": HOSTILE, "number": 0.1})
    assert "</script><img" not in block and "\u2028" not in block
    assert json.loads(block.removeprefix('<script type="application/json">').removesuffix("</script>")) == {
        "text": HOSTILE,
        "number": 0.1,
    }


def test_pages_name_no_address_and_forbid_requests() -> None:
    pages = [
        _report(),
        circuit_html(view_samples.circuit(6, 8, 2, 30), title="c"),
        head_map_html(view_samples.heads(2, 4), title="h"),
    ]
    for page in pages:
        assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|\bsrc=|fetch\(|XMLHttpRequest|localStorage", page)
        assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:" in page


def test_pages_are_small() -> None:
    assert len(circuit_html(view_samples.circuit(2, 4, 4, 24, mlps=False), title="c").encode()) < 90_000
    assert len(circuit_html(view_samples.circuit(30, 9, 3, 2000), title="c").encode()) < 260_000
    assert len(head_map_html(view_samples.heads(30, 9), title="h").encode()) < 90_000


def test_a_fragment_shows_itself_in_a_notebook_in_a_frame_of_its_own() -> None:
    shown = head_map_fragment(view_samples.heads(2, 4))._repr_html_()
    inner = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert shown.startswith('<iframe sandbox="allow-scripts allow-downloads"') and inner.startswith("<!doctype html>")


def test_a_part_of_no_known_kind_is_named() -> None:
    with pytest.raises(ViewError, match="int"):
        section = Section("s", [])
        object.__setattr__(section, "parts", [7])
        report_html("t", [section], {})


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path: Any) -> None:
    path = tmp_path / "new" / "page.html"
    for text in ("one é", "two 日本"):
        assert save_html(path, text) == path
    assert path.read_text(encoding="utf-8") == "two 日本" and [item.name for item in path.parent.iterdir()] == ["page.html"]
