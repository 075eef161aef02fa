"""The score tensor: what it accepts, and its reductions."""

from __future__ import annotations

import pytest
import torch

from interp.circuits import CircuitError, EdgeScores, Graph, ScoreRecord


def random_scores(graph: Graph, seed: int = 0) -> EdgeScores:
    values = torch.randn(graph.allowed.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return EdgeScores(graph, values * graph.allowed, ScoreRecord(method="eap"))


def test_reductions_are_sums_of_the_same_tensor():
    scores = random_scores(Graph(2, 4, 2))
    table = scores.to_pandas()
    nodes = table.groupby("writer")["score"].sum()
    for port, score in zip(scores.graph.writers, scores.node_scores(), strict=True):
        assert float(score) == pytest.approx(nodes[port.name], abs=1e-12)
    assert torch.equal(scores.head_scores()[1], scores.node_scores()[scores.graph.heads(1)])
    between = scores.by_node()["input"]
    assert between["a1.h2"] == scores["input->a1.h2<q>"]
    assert between["a1.g1"] == pytest.approx(scores["input->a1.g1<k>"] + scores["input->a1.g1<v>"])
    assert len(table) == len(scores) == scores.graph.n_edges
    assert dict(scores.items())["m0->m1"] == scores["m0->m1"]


def test_grouping_sums_over_the_query_heads_of_a_group():
    scores = random_scores(Graph(2, 4, 4))
    grouped = scores.grouped(2)
    assert grouped.graph == Graph(2, 4, 2)
    assert grouped["m0->a1.g1<v>"] == pytest.approx(scores["m0->a1.h2<v>"] + scores["m0->a1.h3<v>"])
    assert grouped["m0->a1.h3<q>"] == scores["m0->a1.h3<q>"]
    assert grouped["m0->logits"] == scores["m0->logits"] and grouped["a1.h3->m1"] == scores["a1.h3->m1"]
    assert torch.allclose(grouped.node_scores(), scores.node_scores())
    with pytest.raises(CircuitError, match="grouped already"):
        grouped.grouped(1)


def test_top_edges_by_magnitude_and_by_sign():
    graph = Graph(1, 1, 1, attn_only=True)
    values = torch.zeros(graph.allowed.shape)
    for edge, score in (("input->a0.h0<q>", -3.0), ("input->logits", 2.0), ("a0.h0->logits", 1.0)):
        values[graph.edge(edge)] = score
    scores = EdgeScores(graph, values, ScoreRecord(higher_is_better=False))
    assert [item.edge for item in scores.top(2)] == ["input->a0.h0<q>", "input->logits"]
    assert [item.score for item in scores.top(2, signed=True)] == [2.0, 1.0]
    helpful = EdgeScores(graph, values, ScoreRecord(higher_is_better=True))
    assert [item.score for item in helpful.top(1, signed=True)] == [-3.0]  # corrupting it lowers a metric that should be high
    with pytest.raises(CircuitError, match="whether a higher unknown is better"):
        EdgeScores(graph, values).top(1, signed=True)
    assert [item.edge for item in scores.top(99)][3:] == ["input->a0.h0<k>", "input->a0.h0<v>"]  # ties in graph order


def test_a_short_description_shows_the_strongest_edges():
    scores = random_scores(Graph(2, 4, 2))
    head, *rows = repr(scores).splitlines()
    assert head == "EdgeScores(eap of unknown, 82 edges, 0 pairs), strongest:"
    assert [row.split()[1] for row in rows] == [item.edge for item in scores.top(5)]
    assert float(rows[0].split()[0]) == pytest.approx(scores.top(1)[0].score, rel=1e-3)
    page = scores._repr_html_()
    assert page.count("<tr>") == 21 and scores.top(20)[-1].edge.replace(">", "&gt;").replace("<", "&lt;") in page


def test_scores_come_back_from_their_file(tmp_path):
    graph = Graph(2, 4, 2)
    values = random_scores(graph).values
    scores = EdgeScores(graph, values, ScoreRecord(method="eap", d_model=8, prompts={"n_pairs": 2}, additive=False))
    again = EdgeScores.load(scores.save(tmp_path / "scores.json"))
    assert torch.equal(again.values, values) and again.graph == graph and again.record == scores.record
    with pytest.raises(CircuitError, match="does not exist"):
        EdgeScores.load(tmp_path / "none.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(CircuitError, match="cannot be read as JSON"):
        EdgeScores.load(tmp_path / "deep.json")


def test_a_record_without_the_entry_is_additive():
    """Files written before the entry existed."""
    old = {name: value for name, value in ScoreRecord().to_dict().items() if name != "additive"}
    assert ScoreRecord(**old).additive


def test_scores_must_fit_the_graph():
    graph = Graph(1, 2, 1)
    values = torch.zeros(graph.allowed.shape)
    with pytest.raises(CircuitError, match="must have shape"):
        EdgeScores(graph, values[:-1])
    with pytest.raises(CircuitError, match="edge input->a0.h1<q> is not finite"):
        bad = values.clone()
        bad[0, 1] = torch.nan
        EdgeScores(graph, bad)
    with pytest.raises(CircuitError, match="must be 0 where the graph has no edge"):
        EdgeScores(graph, values + 1)
