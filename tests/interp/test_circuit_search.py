"""Selecting and pruning on graphs small enough to see the answer."""

from __future__ import annotations

import pytest
import torch

from interp.circuits import Circuit, CircuitError, EdgeScores, Graph, ScoreRecord, prune, select


def scored(graph: Graph, **edges: float) -> EdgeScores:
    values = torch.zeros(graph.allowed.shape)
    for edge, score in edges.items():
        values[graph.edge(edge)] = score
    return EdgeScores(graph, values, ScoreRecord(higher_is_better=False))


GRAPH = Graph(2, 2, 2)
SCORES = scored(
    GRAPH,
    **{
        "input->a0.h0<v>": 5.0,
        "a0.h0->a1.h1<k>": -4.0,
        "a1.h1->logits": 1.0,
        "m0->logits": 0.5,
        "input->m0": -9.0,
        "m1->logits": -0.25,
    },
)


def test_top_threshold_and_sign():
    assert set(select(SCORES, top=3).edges) == {"input->m0", "input->a0.h0<v>", "a0.h0->a1.h1<k>"}
    assert select(SCORES, top=2, signed=True).edges == ["input->a0.h0<v>", "a1.h1->logits"]
    assert set(select(SCORES, threshold=1.0).edges) == {"input->m0", "input->a0.h0<v>", "a0.h0->a1.h1<k>", "a1.h1->logits"}
    assert set(select(SCORES, threshold=1.0, signed=True).edges) == {"input->a0.h0<v>", "a1.h1->logits"}
    assert select(SCORES, top=0).n_edges == 0 and select(SCORES, top=GRAPH.n_edges).n_edges == GRAPH.n_edges
    assert select(SCORES, threshold=0.0).n_edges == GRAPH.n_edges  # only edges, never the other pairs


def test_greedy_grows_from_the_logits():
    assert select(SCORES, greedy=1).edges == ["a1.h1->logits"]
    assert set(select(SCORES, greedy=3).edges) == {"a1.h1->logits", "a0.h0->a1.h1<k>", "input->a0.h0<v>"}
    signed = select(SCORES, greedy=2, signed=True).edges
    assert set(signed) == {"a1.h1->logits", "m0->logits"}
    for n in range(GRAPH.n_edges + 1):
        grown = select(SCORES, greedy=n)
        assert grown.n_edges == n
        assert not (grown - Circuit(GRAPH, _leading(grown))).n_edges  # every edge leads to the logits


def _leading(circuit: Circuit) -> torch.Tensor:
    """Edges from which the logits can be reached, by walking back from them one edge at a time."""
    graph, open_readers, found = circuit.graph, {len(circuit.graph.readers) - 1}, torch.zeros_like(circuit.mask)
    for _ in range(len(graph.writers)):
        for writer, reader in circuit.mask.nonzero().tolist():
            if reader in open_readers:
                found[writer, reader] = True
                open_readers |= set(graph.feeds[:, writer].nonzero()[:, 0].tolist())
    return found


def test_greedy_enters_a_shared_key_once_any_head_of_the_group_is_in():
    graph = Graph(2, 2, 1, attn_only=True)
    scores = scored(graph, **{"a1.h1->logits": 1.0, "a0.h0->a1.g0<k>": 2.0, "a0.h1->a1.h0<q>": 3.0})
    assert select(scores, greedy=2).edges == ["a0.h0->a1.g0<k>", "a1.h1->logits"]


def test_selection_is_deterministic_with_ties():
    flat = EdgeScores(GRAPH, GRAPH.allowed.float())
    assert torch.equal(select(flat, top=7).mask, select(flat, top=7).mask)
    assert select(flat, top=3).edges == GRAPH.edge_names()[:3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "exactly one of top, threshold and greedy, got none"),
        ({"top": 1, "greedy": 2}, "got top, greedy"),
        ({"top": -1}, "between 0 and"),
        ({"greedy": 10**6}, "greedy must be a whole number of edges between 0 and"),
    ],
)
def test_what_select_refuses(arguments, words):
    with pytest.raises(CircuitError, match=words):
        select(SCORES, **arguments)


def test_pruning_keeps_only_paths_from_input_to_logits():
    circuit = Circuit.from_edges(GRAPH, ["input->a0.h0<q>", "a0.h0->logits", "a0.h1->m1"])
    pruned = prune(circuit)
    assert pruned.edges == ["input->a0.h0<q>", "a0.h0->logits"]
    assert pruned.nodes == ["input", "a0.h0", "logits"]
    assert torch.equal(prune(pruned).mask, pruned.mask)


def test_pruning_follows_whole_chains():
    dead_end = ["input->m0", "m0->a1.h0<v>"]
    unreached = ["a0.h1->a1.h1<k>", "a1.h1->m1", "m1->logits"]
    path = ["input->a0.h0<v>", "a0.h0->logits"]
    assert prune(Circuit.from_edges(GRAPH, dead_end + unreached + path)).edges == path
    assert prune(Circuit.from_edges(GRAPH, dead_end + unreached)).n_edges == 0
    assert torch.equal(prune(Circuit.full(GRAPH)).mask, GRAPH.allowed)


def test_a_shared_key_carries_a_path_to_every_head_of_its_group():
    graph = Graph(2, 4, 2)
    circuit = Circuit.from_edges(graph, ["input->a0.g1<k>", "a0.h2->logits", "a0.h1->logits"])
    assert prune(circuit).edges == ["input->a0.g1<k>", "a0.h2->logits"]


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_pruning_that_would_change_outputs_is_refused(ablation):
    path = ["input->a0.h0<v>", "a0.h0->logits"]
    dead_end = Circuit.from_edges(GRAPH, [*path, "input->m0"])
    assert prune(dead_end, ablation).edges == path
    with pytest.raises(CircuitError, match=f"m1->logits would change the circuit's output under {ablation} ablation"):
        prune(Circuit.from_edges(GRAPH, [*path, "m1->logits"]), ablation)
    with pytest.raises(CircuitError, match="ablation must be one of"):
        prune(dead_end, "nothing")
