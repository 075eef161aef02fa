"""Structure: counts known in closed form, order, names."""

from __future__ import annotations

import pytest
import torch
from circuit_helpers import tiny_model

from interp.circuits import Circuit, CircuitError, Graph, Layer, prune
from interp.circuits.circuit import node_names

SHAPES = {
    "gpt2-small": (Graph(12, 12, 12), 32_491),
    "gpt2-small, parallel": (Graph(12, 12, 12, parallel=True), 32_347),
    "smollm2-135m": (Graph(30, 9, 3), 70_651),
    "smollm2-135m, ungrouped": (Graph(30, 9, 9), 123_211),
    "gemma3-270m": (Graph(18, 4, 1), 5_644),
    "gemma3-270m, ungrouped": (Graph(18, 4, 4), 10_342),
}


@pytest.mark.parametrize(("graph", "n_edges"), SHAPES.values(), ids=SHAPES)
def test_edge_counts(graph, n_edges):
    names = graph.edge_names()
    assert graph.n_edges == len(names) == len(set(names)) == n_edges


def test_ungrouped_graph_of_a_grouped_model():
    assert Graph(30, 9, 3).ungrouped() == Graph(30, 9, 9)


def test_no_reader_comes_before_its_writer():
    graph = Graph(3, 4, 2)
    for writer, reader in graph.allowed.nonzero().tolist():
        source, target = graph.writers[writer], graph.readers[reader]
        same_block = source.layer == target.layer
        assert source.layer < target.layer or (same_block and source.kind == "head" and target.kind == "mlp")
    earlier = sum(s.layer < t.layer for s in graph.writers for t in graph.readers)
    assert graph.n_edges == earlier + 3 * 4  # every head writes to its own block's MLP


@pytest.mark.parametrize("parallel", [False, True])
def test_heads_of_a_block_feed_its_mlp_only_when_serial(parallel):
    graph = Graph(2, 3, 3, parallel=parallel)
    mlp, head = graph.reader("m1"), graph.writer("a1.h2")
    assert bool(graph.allowed[head, mlp]) is not parallel
    assert not graph.allowed[head, graph.reader("a1.h0<q>")]
    assert graph.allowed[graph.writer("m1"), graph.reader("logits")]


def test_names_of_grouped_and_ungrouped_readers():
    assert [port.name for port in Graph(1, 2, 1).readers] == ["a0.h0<q>", "a0.h1<q>", "a0.g0<k>", "a0.g0<v>", "m0", "logits"]
    readers = [port.name for port in Graph(1, 2, 2, attn_only=True).readers]
    assert readers == ["a0.h0<q>", "a0.h1<q>", "a0.h0<k>", "a0.h1<k>", "a0.h0<v>", "a0.h1<v>", "logits"]
    assert [port.name for port in Graph(2, 1, 1).writers] == ["input", "a0.h0", "m0", "a1.h0", "m1"]


def test_ranges_agree_with_the_list_of_ports():
    graph = Graph(3, 4, 2)
    for layer in range(3):
        assert [port.name for port in graph.writers[graph.heads(layer)]] == [f"a{layer}.h{i}" for i in range(4)]
        assert graph.writers[graph.mlp(layer)].name == f"m{layer}"
        for kind in ("q", "k", "v", "mlp"):
            assert {(port.layer, port.kind) for port in graph.readers[graph.inputs(layer, kind)]} == {(layer, kind)}
    assert graph.readers[graph.inputs(3, "logits")] == (graph.readers[-1],)


def test_a_kv_head_feeds_its_whole_group():
    graph = Graph(2, 4, 2)
    fed = graph.feeds[graph.reader("a1.g1<k>")].nonzero()[:, 0].tolist()
    assert [graph.writers[i].name for i in fed] == ["a1.h2", "a1.h3"]
    assert graph.feeds[graph.reader("a1.h3<q>")].nonzero()[:, 0].tolist() == [graph.writer("a1.h3")]
    assert not graph.feeds[graph.reader("logits")].any()


HYBRID = [Layer.whole(3, mlp=False), Layer.attention(4, 2), Layer.attention(2, 2, parallel=True)]


def test_layers_may_differ():
    graph = Graph.of_layers(HYBRID)
    assert [port.name for port in graph.writers] == (
        ["input", "a0.h0", "a0.h1", "a0.h2", "a1.h0", "a1.h1", "a1.h2", "a1.h3", "m1", "a2.h0", "a2.h1", "m2"]
    )
    readers = ["a0<x>", "a1.h0<q>", "a1.h1<q>", "a1.h2<q>", "a1.h3<q>", "a1.g0<k>", "a1.g1<k>", "a1.g0<v>", "a1.g1<v>", "m1"]
    readers += ["a2.h0<q>", "a2.h1<q>", "a2.h0<k>", "a2.h1<k>", "a2.h0<v>", "a2.h1<v>", "m2", "logits"]
    assert [port.name for port in graph.readers] == readers
    # upstream of: <x> 1 writer, layer 1's eight 4 each, its MLP 8, layer 2's seven 9 each, the logits all 12
    assert graph.n_edges == 1 + 8 * 4 + 8 + 7 * 9 + 12
    assert graph.sizes == {"n_layers": 3, "n_heads": 4, "n_kv_heads": 3, "parallel": False, "attn_only": False}
    assert list(graph.stages()) == [(0, "attn"), (1, "attn"), (1, "mlp"), (2, "attn"), (2, "mlp"), (3, "logits")]
    for layer, stage in graph.stages():
        for kind in graph.kinds(layer, stage):
            assert {(port.layer, port.kind) for port in graph.readers[graph.inputs(layer, kind)]} == {(layer, kind)}
    assert node_names(graph)[:6] == ["input", "a0", "a0.h0", "a0.h1", "a0.h2", "a1.g0"]


def test_one_reader_of_a_mixer_feeds_all_its_heads():
    graph = Graph.of_layers(HYBRID)
    fed = graph.feeds[graph.reader("a0<x>")].nonzero()[:, 0].tolist()
    assert [graph.writers[i].name for i in fed] == ["a0.h0", "a0.h1", "a0.h2"]
    assert [graph.reader_of(1, 3, kind) for kind in "qkvx"] == ["a1.h3<q>", "a1.g1<k>", "a1.g1<v>", None]
    assert graph.reader_of(0, 2, "x") == "a0<x>" and graph.reader_of(0, 2, "k") is None
    assert graph.ungrouped() == Graph.of_layers([HYBRID[0], Layer.attention(4, 4), HYBRID[2]])


def test_a_layer_that_borrows_is_fed_from_where_it_borrows():
    lent = tuple((kind, ((0, 1),)) for kind in "kv")
    own = (("q", ((0,), (1,))),)
    graph = Graph.of_layers([Layer.attention(2, 1), Layer(2, own, source=0, borrowed=lent), Layer.attention(2, 1)])
    fed = graph.feeds[graph.reader("a0.g0<v>")].nonzero()[:, 0].tolist()
    assert [graph.writers[i].name for i in fed] == ["a0.h0", "a0.h1", "a1.h0", "a1.h1"]
    assert [graph.restart(layer) for layer in range(4)] == [0, 0, 2, 3]
    assert not any(port.name == "a1.g0<k>" for port in graph.readers)
    assert prune(Circuit.from_edges(graph, ["input->a0.g0<v>", "a1.h0->logits"])).edges == ["input->a0.g0<v>", "a1.h0->logits"]


def test_layers_of_attention_that_are_equal_need_only_their_sizes():
    assert Graph.of_layers([Layer.attention(4, 2)] * 3) == Graph(3, 4, 2) and Graph(3, 4, 2).is_uniform
    assert not Graph.of_layers(HYBRID).is_uniform and not Graph.of_layers([Layer.whole(2)] * 2).is_uniform
    assert repr(Graph(1, 2, 1)) == "Graph(n_layers=1, n_heads=2, n_kv_heads=1, parallel=False, attn_only=False)"
    assert "3 heads x1; 4 heads q4 k2 v2 + MLP" in repr(Graph.of_layers(HYBRID))
    assert [Layer.from_dict(layer.to_dict()) for layer in HYBRID] == HYBRID


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Graph(2, 4, 2, layers=(Layer.attention(4, 2),)), "must be those of its layers"),
        (lambda: Graph.of_layers([]), "n_layers of a graph must be at least 1"),
        (lambda: Layer(2, (("q", ((0,), (2,))),)), "feeds a head outside the layer's 2"),
        (lambda: Layer(2, (("z", ((0, 1),)),)), "is one of q, k, v, x, got 'z'"),
        (lambda: Layer(2, (("q", ((0,), (1,))),), borrowed=(("k", ((0, 1),)),)), "must name their layer as source"),
        (lambda: Layer.from_dict({"n_heads": 2}), "must give n_heads, readers, mlp and parallel"),
    ],
)
def test_layers_that_make_no_sense_are_refused(make, words):
    with pytest.raises(CircuitError, match=words):
        make()


def test_graph_of_a_model():
    assert Graph.of(tiny_model("llama_gqa")) == Graph(2, 4, 2)
    assert Graph.of(tiny_model("neox")) == Graph(2, 4, 4, parallel=True)
    assert Graph.of(tiny_model("attn_only")) == Graph(2, 4, 4, attn_only=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a0.h3->a1.h9<q>", "no reader called 'a1.h9<q>'"),
        ("a0.h3->a1.h3<k>", "did you mean"),
        ("b0->m1", "no writer called 'b0'"),
        ("m1->m0", "m0 reads before m1 has written"),
        ("m1", "named 'writer->reader'"),
    ],
)
def test_an_edge_that_is_none_is_named(name, words):
    with pytest.raises(CircuitError, match=words.replace("(", r"\(")):
        Graph(2, 4, 2).edge(name)


def test_sizes_are_checked():
    with pytest.raises(CircuitError, match="multiple of n_kv_heads, got 4 and 3"):
        Graph(1, 4, 3)
    with pytest.raises(CircuitError, match="n_layers of a graph must be at least 1"):
        Graph(0, 4, 4)


def test_circuits_are_sets_of_edges():
    graph = Graph(2, 2, 1)
    a = Circuit.from_edges(graph, ["input->a0.h1<q>", "a0.h1->a1.g0<k>", "a1.h0->logits"])
    b = Circuit.from_edges(graph, ["a1.h0->logits", "m0->m1"])
    assert len(a) == 3 and "m0->m1" not in a and "m0->m1" in b
    assert (a | b).n_edges == 4 and (a & b).edges == ["a1.h0->logits"] and (a - b).n_edges == 2
    assert a.jaccard(b) == 1 / 4 and a.jaccard(a) == 1 and Circuit.empty(graph).jaccard(Circuit.empty(graph)) == 1
    assert a.nodes == ["input", "a0.h1", "a1.g0", "a1.h0", "logits"]
    assert Circuit.full(graph).nodes == node_names(graph)
    assert set(a.nodes) <= set(node_names(graph))


def test_a_mask_outside_the_graph_is_refused():
    graph = Graph(2, 2, 2)
    mask = torch.zeros_like(graph.allowed)
    mask[graph.writer("m1"), graph.reader("m0")] = True
    with pytest.raises(CircuitError, match="keeps m1->m0, which is no edge"):
        Circuit(graph, mask)
    with pytest.raises(CircuitError, match="different graphs"):
        Circuit.empty(graph) | Circuit.empty(Graph(2, 2, 1))
    with pytest.raises(CircuitError, match="must have shape"):
        Circuit(graph, mask[:-1])
