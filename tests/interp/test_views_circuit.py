"""Circuits as views hold them: names, ranks, totals, geometry, and what is said about edges left out."""

from __future__ import annotations

import html
import itertools
import math
from typing import Any

import pytest
import torch
import view_samples
from view_samples import payload

from interp.circuits import EdgeScores, Graph, Layer
from interp.export import to_mib
from interp.views import ViewError, circuit_fragment, circuit_html
from interp.views.circuit_data import read_circuit
from interp.views.circuit_layout import Box, Layout, lay_out
from interp.views.names import Name, parse_edge, parse_name, role_class, role_of

SIZES = [(30, 9, 3, 200, True), (2, 4, 4, 24, False), (6, 8, 1, 90, True), (12, 16, 4, 300, True)]


def small_circuit(**edges: float) -> dict[str, Any]:
    """A 2-layer, 4-head, 2-group circuit of the given edges."""
    return {
        "cfg": {"n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "parallel_attn_mlp": False, "d_model": 8},
        "nodes": {},
        "edges": {name: {"score": score, "in_graph": True} for name, score in edges.items()},
    }


# ---- names


def test_names_are_read_and_titled() -> None:
    assert parse_name("a18.h6<q>") == Name("head", 18, 6, "q")
    assert [parse_name(text).title for text in ("a18.h6", "a3.g1<k>", "m4", "input")] == ["L18H6", "L3 KV1", "MLP4", "input"]
    writer, reader = parse_edge("a0.h3->a1.g0<k>")
    assert (writer.node, reader.node, reader.port) == ("a0.h3", "a1.g0", "k")


@pytest.mark.parametrize(
    "text", ["a0.h3", "a0.h3->", "logits->m1", "a0.g0->m1", "a0.h1<q>->m1", "a0.h1->a1.h1", "m0->input", "a0->m1", "m0->a1.h0<x>"]
)
def test_impossible_edges_are_named(text: str) -> None:
    with pytest.raises(ViewError, match="wanted") as caught:
        parse_edge(text)
    assert text.partition("->")[0] in str(caught.value) or text.partition("->")[2] in str(caught.value)


def test_roles_come_from_labels_in_any_spelling() -> None:
    assert {role_of(text) for text in ("previous-token", "previous_token 0.9", "Previous token -0.2, first token")} == {
        "previous token"
    }
    assert role_class("induction") == "role-0" and role_class("anti induction") != "role-0"


# ---- circuits


def test_edges_are_ranked_and_totals_count_dropped_edges() -> None:
    edges = {"input->a0.h1<q>": 0.1, "a0.h1->a1.g1<v>": -0.5, "a0.h1->logits": 0.3, "a1.h2->logits": -0.2}
    data = read_circuit(
        small_circuit(**edges) | {"edges": {**small_circuit(**edges)["edges"], "m0->m1": {"score": 9, "in_graph": False}}}, 2
    )
    assert [(edge.writer.node, edge.score, edge.rank) for edge in data.edges] == [("a0.h1", -0.5, 1), ("a0.h1", 0.3, 2)]
    assert (data.n_in_circuit, data.n_scored, data.n_dropped) == (4, 5, 2)
    assert data.sent["a0.h1"].score == pytest.approx(-0.2) and data.sent["a0.h1"].edges == 2
    assert data.received["logits"].score == pytest.approx(0.1) and data.received["a1.g1"].edges == 1
    assert Name("mlp", 0) not in data.nodes


def test_a_group_of_one_is_its_head() -> None:
    circuit = small_circuit(**{"a0.h1->a1.g3<k>": 1.0})
    circuit["cfg"]["n_kv_heads"] = 4
    assert read_circuit(circuit).edges[0].reader == Name("head", 1, 3, "k")


def test_ungrouped_readers_override_the_number_of_groups() -> None:
    data = read_circuit(small_circuit(**{"a0.h1->a1.h3<k>": 1.0}))
    assert data.shape[1].own == ("q", "k", "v") and not lay_out(data).groups


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cfg": None}, r"circuit\['cfg'\]"),
        ({"cfg": {"n_layers": 0, "n_heads": 4}}, "n_layers"),
        ({"cfg": {"n_layers": 2, "n_heads": 4, "n_kv_heads": 3}}, "does not divide"),
        ({"edges": {"a0.h1->a1.h9<q>": {"score": 1.0}}}, "outside the model"),
        ({"edges": {"a0.h1->a7.h0<q>": {"score": 1.0}}}, "outside the model"),
        ({"edges": {"a0.h1->a1.g2<k>": {"score": 1.0}}}, "outside the model"),
        ({"edges": {"a0.h1->a1.g0<q>": {"score": 1.0}}}, "outside the model"),
        ({"edges": {"a0.h1->a1<x>": {"score": 1.0}}}, "outside the model"),
        ({"cfg": {"layers": []}}, "layers'] is empty"),
        ({"cfg": {"layers": [{"n_heads": 2}]}}, "n_heads, readers, mlp and parallel"),
        ({"edges": {"a0.h1->logits": {"score": math.nan}}}, "a0.h1->logits"),
        ({"edges": {"a0.h1->logits": {"score": "big"}}}, "a0.h1->logits"),
        ({"edges": {"a0.h1->logits": 0.5}}, "in_graph"),
        ({"edges": {"a0.x1->logits": {"score": 1.0}}}, "a0.x1"),
        ({"nodes": {"neuron7": {"in_graph": True}}}, "neuron7"),
    ],
)
def test_a_damaged_circuit_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ViewError, match=words):
        circuit_html(small_circuit(**{"a0.h1->logits": 1.0}) | change, title="t")


def test_max_edges_must_be_positive() -> None:
    with pytest.raises(ViewError, match="max_edges is 0"):
        circuit_html(small_circuit(), title="t", max_edges=0)


def hybrid_circuit() -> dict[str, Any]:
    """A layer with one reader and without MLP, one of grouped attention, one in parallel whose heads have their own keys."""
    layers = [Layer.whole(3, mlp=False), Layer.attention(4, 2), Layer.attention(2, 2, parallel=True)]
    graph = Graph.of_layers(layers)
    values = graph.allowed * torch.linspace(-1, 1, graph.allowed.numel()).view(graph.allowed.shape)
    return to_mib(EdgeScores(graph, values))


def test_a_hybrid_is_drawn_layer_by_layer() -> None:
    circuit = hybrid_circuit()
    data = payload(circuit_fragment(circuit))
    assert len(data["edges"]) == len(circuit["edges"])
    strips = {group["id"]: group["heads"] for group in data["groups"]}
    assert strips == {"a0": "heads 0–2", "a1.g0": "heads 0–1", "a1.g1": "heads 2–3"}
    nodes = {node["id"]: node for node in data["nodes"]}
    assert nodes["a0.h2"]["groups"] == [0] and nodes["a1.h3"]["groups"] == [2] and "groups" not in nodes["a2.h1"]
    assert "m0" not in nodes and "a2.h2" not in nodes and {"m1", "m2"} <= set(nodes)
    assert {port["kind"] for port in data["ports"] if port.get("group") == 0} == {"x"}
    page = html.unescape(circuit_html(circuit, title="t"))
    assert "one reader of a mixer" in page and "layers 0" in page and 'data-kind="x"' in page


def test_heads_that_borrow_keys_belong_to_the_strip_they_borrow_from() -> None:
    lent = tuple((kind, ((0, 1),)) for kind in "kv")
    graph = Graph.of_layers([Layer.attention(2, 1), Layer(2, (("q", ((0,), (1,))),), source=0, borrowed=lent)])
    data = payload(circuit_fragment(to_mib(EdgeScores(graph, graph.allowed.float()))))
    nodes = {node["id"]: node for node in data["nodes"]}
    (strip,) = data["groups"]
    assert strip["heads"] == "heads 0–1" and nodes["a1.h1"]["groups"] == [0]
    assert [data["nodes"][member]["id"] for member in strip["members"]] == ["a0.h0", "a0.h1", "a1.h0", "a1.h1"]


def _overlap(one: Box, other: Box) -> bool:
    return (
        min(one.x + one.w, other.x + other.w) - max(one.x, other.x) > 1e-6
        and min(one.bottom, other.bottom) - max(one.y, other.y) > 1e-6
    )


def _layouts() -> list[tuple[Any, Layout]]:
    options = [{}, {}, {}, {}, {"parallel": True}, {"ungrouped": True}]
    sizes = [*SIZES, SIZES[2], SIZES[2]]
    samples = [view_samples.circuit(*size[:4], mlps=size[4], **more) for size, more in zip(sizes, options, strict=True)]
    return [(data := read_circuit(sample), lay_out(data)) for sample in [*samples, hybrid_circuit()]]


def test_nothing_overlaps_and_everything_is_inside() -> None:
    for _, layout in _layouts():
        ports = [port.box for reader, port in layout.ports.items() if reader.kind != "logits"]
        boxes = [box for _, box in layout.nodes.values()] + ports
        assert not [pair for pair in itertools.combinations(boxes, 2) if _overlap(*pair)]
        assert all(0 <= box.x and box.x + box.w <= layout.width and 0 <= box.y and box.bottom <= layout.height for box in boxes)


def test_layers_rise_from_input_to_logits_and_every_edge_goes_up() -> None:
    for data, layout in _layouts():
        tops = {name.layer: [] for name, _ in layout.nodes.values() if name.kind == "head"}
        for name, box in layout.nodes.values():
            if name.kind == "head":
                tops[name.layer].append(box.y)
        assert all(len(set(values)) == 1 for values in tops.values())
        heights = [tops[layer][0] for layer in sorted(tops)]
        assert heights == sorted(heights, reverse=True)
        for edge in data.edges:
            source, port = layout.nodes[edge.writer.node][1], layout.ports[edge.reader]
            inside = edge.writer.layer == edge.reader.layer and edge.reader.kind == "mlp"
            target = layout.nodes[edge.reader.node][1] if inside else port.box
            assert (target.y if inside else target.bottom) < source.y + 1e-6, edge


def test_a_key_value_strip_spans_exactly_the_heads_of_its_group() -> None:
    data = read_circuit(view_samples.circuit(6, 8, 2, 150))
    layout = lay_out(data)
    full = [group for group in layout.groups if all(f"{group[:3]}h{h}" in layout.nodes for h in _members(group))]
    assert full
    for group in full:
        first, last = (layout.nodes[f"{group[:3]}h{h}"][1] for h in (_members(group)[0], _members(group)[-1]))
        box = layout.groups[group][1]
        assert (box.x, box.x + box.w) == pytest.approx((first.x, last.x + last.w))
    assert {reader.kind for reader in layout.ports if reader.port in ("k", "v")} == {"group"}


def _members(group: str) -> list[int]:
    start = 4 * int(group.split("g")[1])
    return list(range(start, start + 4))


def test_the_page_holds_the_strongest_edges_and_says_what_it_left_out() -> None:
    circuit = view_samples.circuit(30, 9, 3, 260, extra=40)
    fragment = circuit_fragment(circuit, max_edges=200)
    data = payload(fragment)
    kept = sorted((entry["score"] for entry in circuit["edges"].values() if entry["in_graph"]), key=abs, reverse=True)[:200]
    assert [abs(edge[2]) for edge in data["edges"]] == pytest.approx([abs(score) for score in kept], rel=1e-6)
    assert "60 weakest of the circuit's 260 edges are not in this page, which holds the 200 strongest" in html.unescape(
        fragment.html
    )
    assert "260 of 300 scored" in fragment.html
    whole = circuit_fragment(circuit)
    assert "data-dropped" not in whole.html and len(payload(whole)["edges"]) == 260


def test_edges_of_the_payload_are_those_of_the_file() -> None:
    circuit = view_samples.circuit(6, 8, 2, 120)
    data = payload(circuit_fragment(circuit))
    found = set()
    for source, port, score in data["edges"]:
        place = data["ports"][port]
        target = data["groups"][place["group"]]["id"] if "group" in place else data["nodes"][place["node"]]["id"]
        reader = f"{target}<{place['kind']}>" if place["kind"] in "qkv" else target
        name = f"{data['nodes'][source]['id']}->{reader}"
        assert score == pytest.approx(circuit["edges"][name]["score"], rel=1e-6)
        found.add(name)
    assert found == set(circuit["edges"])


def test_labels_lose_the_name_the_box_shows_anyway() -> None:
    circuit = small_circuit(**{"a0.h1->logits": 1.0, "m0->logits": 1.0})
    labels = {"a0.h1": "L0H1 induction 0.90", "m0": "m0: writes names", "a1.h1": "not in the circuit"}
    nodes = {node["id"]: node for node in payload(circuit_fragment(circuit, node_labels=labels))["nodes"]}
    assert nodes["a0.h1"]["label"] == "induction 0.90" and nodes["a0.h1"]["role"] == "role-0"
    assert nodes["m0"]["label"] == "writes names" and "a1.h1" not in nodes


def test_facts_and_faithfulness_are_printed() -> None:
    circuit = view_samples.circuit(6, 8, 2, 20)
    page = circuit_html(
        circuit, title="T", faithfulness={"faithfulness": {"zero_ablation": 0.41234}, "n": 10, "undefined": math.nan}
    )
    for words in ("<dd>eap-ig</dd>", "<dt>faithfulness: zero ablation</dt><dd>0.412</dd>", "<dd>–</dd>", "shared by 4 heads"):
        assert words in page
    assert "corrupting the edge lowers the metric" in page
    assert "score below 0" in circuit_html(circuit | {"difference": "clean-corrupt"}, title="T")


def test_an_empty_circuit_still_makes_a_page() -> None:
    page = circuit_html(small_circuit(), title="empty")
    assert "0 of 0 scored" in page
