"""The circuit view in a real browser: what a reader sees and does, and that the page asks for nothing and does not complain."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import pytest
import view_samples

from interp.views import Section, circuit_fragment, circuit_html, report_html

pytest_plugins = ["view_browser"]
pytestmark = pytest.mark.usefixtures("nothing_asked_and_nothing_complained")

Open = Callable[..., Any]

CIRCUIT = view_samples.circuit(6, 6, 2, 150, extra=30, seed=3)
EDGES = {name: entry["score"] for name, entry in CIRCUIT["edges"].items() if entry["in_graph"]}
LABELS = {"a0.h3": "L0H3 previous token 0.99", "a4.h1": "L4H1 induction 0.88", "a5.h2": "L5H2 induction 0.71"}


@pytest.fixture(scope="module")
def circuit_page(pages: Any) -> Any:
    return pages.open(circuit_html(CIRCUIT, title="Six layers", node_labels=LABELS))


@pytest.fixture
def circuit(circuit_page: Any) -> Any:
    """The circuit of `CIRCUIT`, as if just opened."""
    circuit_page.mouse.move(0, 0)
    circuit_page.evaluate("""() => { document.activeElement.blur();
        const view = document.querySelector('.circuit').view; view.home = null; view.rove(); view.reset(); }""")
    circuit_page.wait_for_timeout(100)
    return circuit_page


def shown(page: Any) -> list[str]:
    """Names of the edges the view says it draws, rebuilt from its data."""
    return page.evaluate(
        """() => { const { shown, data } = document.querySelector('.circuit').view;
        const end = ({ group, node }) => group != null ? data.groups[group].id : data.nodes[node].id;
        const port = ({ kind }) => kind.length === 1 ? `<${kind}>` : '';
        return shown.map(({ from, to }) => `${data.nodes[from].id}->${end(data.ports[to])}${port(data.ports[to])}`); }"""
    )


def in_focus(page: Any) -> set[str]:
    names = shown(page)
    flags = page.evaluate(
        "() => { const v = document.querySelector('.circuit').view; return v.shown.map(r => !v.focus || v.focus.has(r.index)); }"
    )
    return {name for name, flag in zip(names, flags, strict=True) if flag}


# A copy that is meant to be read: reading the view's own canvas would slow it down, and the browser would say so.
PIXELS = """() => { const c = document.querySelector('canvas'); const copy = document.createElement('canvas');
    Object.assign(copy, { width: c.width, height: c.height });
    const context = copy.getContext('2d', { willReadFrequently: true });
    context.drawImage(c, 0, 0); const d = context.getImageData(0, 0, c.width, c.height).data"""


def coloured(page: Any) -> int:
    """How many canvas pixels have a strong colour: edges have one, boxes and lines are grey."""
    page.wait_for_timeout(80)
    count = """; let n = 0; const strong = (...rgb) => Math.max(...rgb) - Math.min(...rgb) > 60;
        for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 20 && strong(d[i], d[i + 1], d[i + 2])) n++;
        return n; }"""
    return page.evaluate(PIXELS + count)


def click_node(page: Any, name: str) -> None:
    page.wait_for_timeout(100)
    page.locator(f'[data-id="{name}"]').click(position={"x": 6, "y": 6})


def test_all_edges_of_the_circuit_are_drawn_and_counted(circuit: Any) -> None:
    assert set(shown(circuit)) == set(EDGES)
    assert circuit.locator("[data-count]").text_content() == "showing 150 of 150 edges"


def test_the_slider_changes_what_is_drawn(circuit: Any) -> None:
    everything = coloured(circuit)
    slider = circuit.locator("[data-slider]")
    slider.fill("400")
    few = int(circuit.locator(".circuit").get_attribute("data-shown"))
    assert few == round(150**0.4)
    assert circuit.locator("[data-count]").text_content() == f"showing {few} of 150 edges"
    strongest = sorted(EDGES, key=lambda name: -abs(EDGES[name]))[:few]
    assert set(shown(circuit)) == set(strongest)
    assert coloured(circuit) < 0.7 * everything
    slider.focus()
    circuit.keyboard.press("End")
    assert len(shown(circuit)) == 150
    circuit.locator("[data-number]").fill("37")
    circuit.keyboard.press("Enter")
    assert circuit.locator("[data-count]").text_content() == "showing 37 of 150 edges"


def test_sign_and_kind_filters(circuit: Any) -> None:
    circuit.locator('[data-sign="neg"]').click()
    assert set(shown(circuit)) == {name for name, score in EDGES.items() if score < 0}
    circuit.locator('[data-kind="v"]').click()
    assert set(shown(circuit)) == {name for name, score in EDGES.items() if score < 0 and "<v>" not in name}
    circuit.locator("[data-reset]").click()
    assert len(shown(circuit)) == 150 and circuit.locator('[data-kind="v"]').get_attribute("aria-pressed") == "true"


def test_hovering_an_edge_says_its_exact_score_rank_ends_and_kind(circuit: Any) -> None:
    name = max(EDGES, key=lambda name: abs(EDGES[name]))
    points = circuit.evaluate(
        """() => { const { stage, routes, view: { zoom, x, y } } = document.querySelector('.circuit').view;
        const { left, top } = stage.getBoundingClientRect(); const { points } = routes[0]; const out = [];
        for (let i = 2; i < 48; i += 2) out.push([left + points[i] * zoom + x, top + points[i + 1] * zoom + y]);
        return out; }"""
    )
    tips = []
    for x, y in points:
        circuit.mouse.move(x, y)
        tip = circuit.locator(".tip:not([hidden])")
        tips.append(tip.inner_text() if tip.count() else "")
    best = next(tip for tip in tips if "rank\t1 of 150" in tip)
    assert f"{EDGES[name]:.7g}".replace("-", "−").lstrip("+") in best
    writer, reader = name.split("->")
    assert best.startswith(writer.upper().replace("A", "L").replace(".H", "H") if writer[0] == "a" else writer[:1])
    assert any(word in best for word in ("query", "key", "value", "MLP input", "logits"))


def test_the_edge_under_the_pointer_is_the_nearest(circuit: Any) -> None:
    """Against distances to 400 points on each curve, from its control points."""
    worst = circuit.evaluate(
        """() => { const v = document.querySelector('.circuit').view; const { zoom } = v.view; let worst = 0;
        const at = ([a, b, c, d, e, f, g, h], t) => { const u = 1 - t;
          return [u*u*u*a + 3*u*u*t*c + 3*u*t*t*e + t*t*t*g, u*u*u*b + 3*u*u*t*d + 3*u*t*t*f + t*t*t*h]; };
        const samples = v.routes.map((r) => Array.from({ length: 401 }, (_, i) => at(r.curve, i / 400)));
        for (let x = 100; x < v.size[0]; x += 97) for (let y = 40; y < v.size[1]; y += 61) {
          const [wx, wy] = [(x - v.view.x) / zoom, (y - v.view.y) / zoom];
          const far = samples.map((points) => zoom * Math.min(...points.map(([px, py]) => Math.hypot(px - wx, py - wy))));
          const hit = v.routeAt([x, y]);
          const best = Math.min(...far);
          if (best < 5) worst = Math.max(worst, hit ? far[hit.index] - best : 99);
          else if (best > 7 && hit) worst = 99; }
        return worst; }"""
    )
    assert worst < 1


def test_hovering_a_node_gives_its_totals(circuit: Any) -> None:
    circuit.wait_for_timeout(100)
    circuit.locator('[data-id="a4.h1"]').hover(position={"x": 6, "y": 6})
    tip = circuit.locator(".tip").inner_text()
    sent = [score for name, score in EDGES.items() if name.startswith("a4.h1->")]
    assert tip.startswith("L4H1 · induction 0.88") and f"in {len(sent)} edge" in tip and "received by L4 KV0" in tip


def test_a_click_isolates_a_nodes_edges_with_its_groups_readers(circuit: Any) -> None:
    click_node(circuit, "a4.h1")
    assert in_focus(circuit) == {
        name for name in EDGES if name.startswith("a4.h1->") or name.split("->")[1] in ("a4.h1<q>", "a4.g0<k>", "a4.g0<v>")
    }
    click_node(circuit, "a4.h1")
    assert in_focus(circuit) == set(EDGES)


def _paths_through(node: str, size: int) -> set[str]:
    """Edges on a way from anything to anything through `node`, by graph search over writers; a group feeds all its heads."""
    graph = networkx.MultiDiGraph()
    for name in EDGES:
        writer, reader = name.split("->")
        target = reader.split("<")[0]
        if ".g" in target:
            layer, group = target.split(".g")
            ends = [f"{layer}.h{head}" for head in range(int(group) * size, (int(group) + 1) * size)]
        else:
            ends = [target]
        for end in ends:
            graph.add_edge(writer, end, name=name)
    up, down = networkx.ancestors(graph, node) | {node}, networkx.descendants(graph, node) | {node}
    return {name for source, target, name in graph.edges(data="name") if target in up or source in down}


def test_paths_are_all_edges_up_and_downstream(circuit: Any) -> None:
    click_node(circuit, "a3.h2")
    circuit.locator('[data-mode="paths"]').click()
    assert in_focus(circuit) == _paths_through("a3.h2", 3)


def test_search_highlights_by_label_and_by_name(circuit: Any) -> None:
    search = circuit.locator("[data-search]")
    search.fill("induction")
    hits = """() => { const { data, marks } = document.querySelector('.circuit').view;
        return data.nodes.filter((node, index) => marks.nodes[index].hit).map(({ id }) => id); }"""
    assert circuit.evaluate(hits) == ["a4.h1", "a5.h2"]
    assert "2 nodes found" in circuit.locator("[data-detail]").inner_text()
    for text in ("L4H1", "4.1", "a4.h1", "l4h1"):
        search.fill(text)
        assert circuit.evaluate(hits) == ["a4.h1"], text
    search.press("Enter")
    assert circuit.evaluate("() => document.querySelector('.circuit').view.view.zoom") >= 0.9
    search.press("Escape")
    assert circuit.evaluate(hits) == [] and search.input_value() == ""


def test_the_keyboard_reaches_moves_isolates_and_clears(circuit: Any) -> None:
    circuit.locator("[data-export]").focus()
    circuit.keyboard.press("Tab")
    focused = "() => document.activeElement.dataset?.id"
    assert circuit.evaluate(focused) == "logits"
    circuit.keyboard.press("ArrowDown")
    first = circuit.evaluate(focused)
    assert first.startswith(("a5.", "m5"))
    circuit.keyboard.press("ArrowDown")
    second = circuit.evaluate(focused)
    circuit.keyboard.press("ArrowUp")
    assert second != first and circuit.evaluate(focused) != second
    circuit.keyboard.press("Enter")
    chosen = circuit.evaluate(focused)
    assert circuit.locator(f'[data-id="{chosen}"]').get_attribute("aria-pressed") == "true"
    circuit.keyboard.press("Escape")
    assert circuit.locator(f'[data-id="{chosen}"]').get_attribute("aria-pressed") == "false"
    zoom = "() => document.querySelector('.circuit').view.view.zoom"
    before = circuit.evaluate(zoom)
    circuit.keyboard.press("+")
    assert circuit.evaluate(zoom) == pytest.approx(before * 1.25)
    circuit.keyboard.press("0")
    assert circuit.evaluate(zoom) == pytest.approx(before)


def test_wheel_zooms_at_the_pointer_and_drag_pans(circuit: Any) -> None:
    view = "() => { const v = document.querySelector('.circuit').view; return [v.view.zoom, v.view.x, v.view.y]; }"
    box = circuit.locator("[data-stage]").bounding_box()
    zoom, x, y = circuit.evaluate(view)
    at = (box["width"] / 2 + 40, box["height"] / 2)
    circuit.mouse.move(box["x"] + at[0], box["y"] + at[1])
    circuit.mouse.wheel(0, -300)
    circuit.wait_for_timeout(50)
    zoom2, x2, y2 = circuit.evaluate(view)
    assert zoom2 > zoom and (at[0] - x2) / zoom2 == pytest.approx((at[0] - x) / zoom, abs=0.6)
    circuit.mouse.down()
    circuit.mouse.move(box["x"] + at[0] + 50, box["y"] + at[1] + 30, steps=4)
    circuit.mouse.up()
    _, x3, y3 = circuit.evaluate(view)
    assert x3 - x2 == pytest.approx(50, abs=1) and y3 - y2 == pytest.approx(30, abs=1)
    assert in_focus(circuit) == set(EDGES)


def test_the_exported_svg_holds_what_is_shown(circuit: Any) -> None:
    circuit.locator("[data-number]").fill("40")
    circuit.keyboard.press("Enter")
    with circuit.expect_download() as caught:
        circuit.locator("[data-export]").click()
    root = ElementTree.fromstring(Path(caught.value.path()).read_text(encoding="utf-8"))
    space = {"s": "http://www.w3.org/2000/svg"}
    assert len(root.findall(".//s:g[@class='edges']/s:path", space)) == 40
    texts = {text.text for text in root.findall(".//s:text", space)}
    assert "logits" in texts and "induction 0.88" in texts


def test_idle_nodes_can_be_hidden(circuit: Any) -> None:
    circuit.locator("[data-number]").fill("5")
    circuit.keyboard.press("Enter")
    grey = PIXELS + "; return d.reduce((n, v, i) => n + (i % 4 === 3 && v > 0), 0); }"
    circuit.wait_for_timeout(80)
    before = circuit.evaluate(grey)
    circuit.locator("[data-hide]").check()
    circuit.wait_for_timeout(80)
    assert circuit.evaluate(grey) < before


def test_in_a_report_the_wheel_scrolls_the_page(open_page: Open) -> None:
    page = open_page(report_html("r", [Section("c", [circuit_fragment(CIRCUIT)])], {f"key {n}": n for n in range(80)}))
    box = page.locator("[data-stage]").bounding_box()
    zoom = "() => document.querySelector('.circuit').view.view.zoom"
    before = page.evaluate(zoom)
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.wheel(0, 400)
    page.wait_for_timeout(250)
    assert page.evaluate(zoom) == before and page.evaluate("() => scrollY") > 100
    assert "Ctrl" in page.locator("[data-hint]").text_content()


def test_two_thousand_edges_stay_smooth(open_page: Open) -> None:
    page = open_page(circuit_html(view_samples.circuit(30, 9, 3, 2000), title="large"))
    median = page.evaluate(
        """() => { const v = document.querySelector('.circuit').view; v.setNumber(2000); const times = [];
        for (let i = 0; i < 25; i++) {
          v.zoomBy(i % 2 ? 1.02 : 1 / 1.02); const start = performance.now(); v.draw(); times.push(performance.now() - start); }
        return [v.shown.length, times.sort((a, b) => a - b)[12]]; }"""
    )
    assert median[0] == 2000 and median[1] < 40, median
    page.locator("[data-search]").fill("1.1")
    assert page.locator(".edge-list li").count() == 1  # L1H1, and neither L11H1 nor L21H1


def test_data_blocks_hold_what_was_given(circuit: Any) -> None:
    block = json.loads(circuit.locator('.circuit > script[type="application/json"]').text_content())
    assert block["inCircuit"] == len(EDGES) == len(block["edges"])
