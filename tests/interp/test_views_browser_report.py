"""Head map, table, charts and whole reports in a real browser, offline and without a word on the console."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import view_samples

from interp.views import (
    Section,
    circuit_fragment,
    curve_fragment,
    head_map_fragment,
    head_map_html,
    report_html,
    table_fragment,
)

pytest_plugins = ["view_browser"]
pytestmark = pytest.mark.usefixtures("nothing_asked_and_nothing_complained")

Open = Callable[..., Any]

CIRCUIT = view_samples.circuit(6, 6, 2, 150, seed=3)
HEADS = view_samples.heads(4, 4)
for _row in HEADS["heads"]:
    if (_row["layer"], _row["head"]) == (2, 3):
        _row |= {"induction": 0.95, "labels": ["induction"], "evidence": {"induction": "measured < 1 & said so"}}


def _report_text(text: str = "Report") -> str:
    lines = {"seed 0": [4.0, 2.0, 0.5], "seed 1": [4.1, 3.0, 0.25]}
    sections = [
        Section("Map", [text, head_map_fragment(HEADS)]),
        Section("Table", [table_fragment(HEADS)]),
        Section("Circuit", [circuit_fragment(CIRCUIT, node_labels={"a4.h1": text})]),
        Section("Curve", [curve_fragment([1, 10, 100], lines, x_label="edges", y_label="loss", log_x=True)]),
    ]
    return report_html(text, sections, {"seed": 0, text: [text]})


@pytest.fixture(scope="module")
def report_page(pages: Any) -> Any:
    return pages.open(_report_text())


@pytest.fixture
def report(report_page: Any) -> Any:
    """One report with every kind of view, the table unfiltered."""
    report_page.mouse.move(0, 0)
    report_page.locator("[data-filter]").fill("")
    return report_page


def column(page: Any, key: str) -> list[str]:
    place = page.evaluate(
        "(key) => [...document.querySelectorAll('.heads thead th')].findIndex(th => th.dataset.key === key)", key
    )
    return page.evaluate("(i) => [...document.querySelectorAll('.heads tbody tr')].map(tr => tr.cells[i].textContent)", place)


def test_the_table_sorts_by_click_and_key_with_undefined_values_last(report: Any) -> None:
    key = "normalized_entropy_no_first"
    header = report.locator(f'.heads th[data-key="{key}"]')
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    values = column(report, key)
    assert values[-4:] == ["–"] * 4
    numbers = [float(value) for value in values[:-4]]
    assert numbers == sorted(numbers, reverse=True)
    report.keyboard.press("Enter")
    values = column(report, key)
    assert header.get_attribute("aria-sort") == "ascending" and values[-4:] == ["–"] * 4
    assert [float(value) for value in values[:-4]] == sorted(numbers)
    assert report.locator('.heads th[data-key="induction"]').get_attribute("aria-sort") == "none"


def test_the_table_starts_with_the_best_head_to_three_digits(open_page: Open) -> None:
    report = open_page(_report_text())
    assert column(report, "head")[0] == "L2H3" and column(report, "induction")[0] == "0.950"


def test_the_table_filters_by_words_and_comparisons(report: Any) -> None:
    box, count = report.locator("[data-filter]"), report.locator(".heads [data-count]")
    for text, wanted in (
        ("L2", {"L2H0", "L2H1", "L2H2", "L2H3"}),
        ("induction > 0.9", {"L2H3"}),
        ("L2, previous token >= 2", set()),
        ("L1, normalized entropy < 2", {"L1H0", "L1H1", "L1H2", "L1H3"}),
    ):
        box.fill(text)
        rows = set(column(report, "head")) if wanted else set()
        assert rows == wanted and count.text_content() == f"{len(wanted)} of 16 heads"
    assert "No head matches" in (box.fill("no such words") or report.locator(".heads tbody").inner_text())


def test_labels_show_their_evidence(report: Any) -> None:
    report.locator('.heads tr[data-head="2.3"] .chip').hover()
    assert "measured < 1 & said so" in report.locator(".tip").inner_text()


def test_a_click_in_the_map_leads_to_the_row(report: Any) -> None:
    report.locator("[data-filter]").fill("L0")
    report.locator('.map-cell[data-head="2.3"]').click()
    assert "chosen" in report.locator('.heads tr[data-head="2.3"]').get_attribute("class")
    assert report.locator("[data-filter]").input_value() == ""


def test_the_map_colours_by_the_chosen_score_and_shows_all_on_hover(report: Any) -> None:
    cell = report.locator('.map-cell[data-head="2.3"]')
    assert cell.text_content() == ".95" and "labelled" in cell.get_attribute("class")
    before = cell.evaluate("(e) => e.style.background")
    report.locator("[data-score]").select_option("normalized_entropy_no_first")
    assert cell.evaluate("(e) => e.style.background") != before
    assert "none" in report.locator('.map-cell[data-head="0.0"]').get_attribute("class")
    cell.hover()
    tip = report.locator(".tip").inner_text()
    row = next(row for row in HEADS["heads"] if (row["layer"], row["head"]) == (2, 3))
    assert tip.startswith("L2H3") and "0.950" in tip and f"{row['temperature']:.3g}" in tip and "induction" in tip
    cell.focus()
    report.keyboard.press("ArrowUp")
    assert report.evaluate("() => document.activeElement.dataset.head") == "3.3"


def test_the_map_draws_layers_upwards(open_page: Open) -> None:
    page = open_page(head_map_html(HEADS, title="map"))
    low, high = (page.locator(f'.map-cell[data-head="{layer}.0"]').bounding_box()["y"] for layer in (0, 3))
    assert low > high


def test_numbers_in_the_map_can_be_read(open_page: Open) -> None:
    for scheme in ("light", "dark"):
        page = open_page(head_map_html(view_samples.heads(20, 12), title="map", score="normalized_entropy"), color_scheme=scheme)
        pairs = page.evaluate(
            """() => [...document.querySelectorAll('.map-cell')].map((cell) => getComputedStyle(cell))
            .map(({ color, backgroundColor }) => [color, backgroundColor])"""
        )
        assert min(contrast(*pair) for pair in pairs) > 4.5


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast of two `rgb(r, g, b)` colours."""
    levels = []
    for colour in (one, other):
        channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        levels.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def test_charts_say_the_values_under_the_pointer(report: Any) -> None:
    chart = report.locator(".curve > svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    report.mouse.move(box["x"] + box["width"] * 0.99, box["y"] + 60)
    tip = report.locator(".tip").inner_text()
    assert tip.startswith("edges: 100") and "0.5" in tip and "0.25" in tip
    chart.focus()
    report.keyboard.press("ArrowLeft")
    assert report.locator(".tip").inner_text().startswith("edges: 10\n")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_systems_scheme_until_told_otherwise(open_page: Open, scheme: str) -> None:
    page = open_page(_report_text(), color_scheme=scheme)
    ground = "() => getComputedStyle(document.body).backgroundColor"
    levels = [sum(int(part) for part in page.evaluate(ground)[4:-1].split(","))]
    page.locator("[data-theme-toggle]").click()
    levels.append(sum(int(part) for part in page.evaluate(ground)[4:-1].split(",")))
    assert (levels[0] > 600, levels[1] > 600) == ((True, False) if scheme == "light" else (False, True))
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    assert page.evaluate("() => document.documentElement.dataset.theme") != scheme


def test_text_is_never_run_or_parsed(open_page: Open) -> None:
    text = "</script><img src=x onerror=window.hacked=1>\"'&\u2028"
    page = open_page(_report_text(text))
    page.locator("[data-search]").fill("img")
    page.locator('[data-id="a4.h1"]').hover(position={"x": 6, "y": 6})
    assert text.replace("\u2028", "") in page.locator(".tip").inner_text().replace("\u2028", "").replace("\n", "")
    assert page.evaluate("() => window.hacked") is None and page.locator("img").count() == 0
    assert page.title() == text.replace("\u2028", "\u2028")


def test_a_narrow_screen_scrolls_downwards_only(open_page: Open) -> None:
    page = open_page(_report_text())
    page.set_viewport_size({"width": 420, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 420
