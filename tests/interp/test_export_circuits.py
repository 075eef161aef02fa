"""Every format comes back as it went out, and other programs' readers accept it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import networkx
import pytest
import torch
from circuit_helpers import random_pairs, tiny_model

from interp import views
from interp.circuits import Circuit, CircuitError, EdgeScores, Graph, Layer, ScoreRecord, prune, select, trace_circuit
from interp.export import (
    ScoredCircuit,
    from_mib,
    from_networkx,
    from_node_link,
    read_graphml,
    read_mib,
    read_node_link,
    to_dot,
    to_mib,
    to_networkx,
    to_node_link,
    write_dot,
    write_graphml,
    write_mib,
    write_node_link,
)
from interp.export.dot import NEGATIVE, POSITIVE


def traced(variant: str = "llama_gqa", dtype: torch.dtype = torch.float32) -> tuple[EdgeScores, Circuit]:
    scores = trace_circuit(tiny_model(variant, dtype=dtype), random_pairs(3), method="eap-ig")
    return scores, select(scores, top=25)


GRAPHS = {
    "grouped": Graph(2, 4, 2),
    "ungrouped": Graph(2, 4, 4),
    "parallel": Graph(3, 2, 2, parallel=True),
    "attn_only": Graph(2, 3, 1, attn_only=True),
    "hybrid": Graph.of_layers([Layer.whole(3, mlp=False), Layer.attention(4, 2), Layer.attention(2, 2, parallel=True)]),
}


def random_scores(graph: Graph, dtype: torch.dtype) -> tuple[EdgeScores, Circuit]:
    values = torch.randn(graph.allowed.shape, generator=torch.Generator().manual_seed(0), dtype=dtype) * 1e-7
    scores = EdgeScores(graph, values * graph.allowed, ScoreRecord(method="exact", metric="kl", d_model=8, n_pairs=2))
    return scores, select(scores, top=graph.n_edges // 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", GRAPHS)
def test_mib_json_is_bit_equal_after_a_round_trip(name, dtype, tmp_path):
    scores, circuit = random_scores(GRAPHS[name], dtype)
    back = read_mib(write_mib(tmp_path / "circuit.json", scores, circuit))
    assert back.scores.graph == scores.graph and back.scores.record == scores.record
    assert torch.equal(back.scores.values, scores.values) and back.scores.values.dtype == dtype
    assert torch.equal(back.circuit.mask, circuit.mask) and back.circuit.how == circuit.how
    assert to_mib(back.scores, back.circuit) == to_mib(scores, circuit)


def test_mib_json_has_the_promised_shape():
    scores, circuit = traced()
    data = to_mib(scores, circuit)
    assert {"n_layers", "n_heads", "parallel_attn_mlp", "d_model", "n_kv_heads"} <= set(data["cfg"])
    assert (data["method"], data["metric"], data["difference"]) == ("eap-ig", "logit_diff", "corrupt-clean")
    assert data["ungrouped"] is False and data["n_pairs"] == 3
    assert list(data["edges"]) == scores.graph.edge_names()
    assert data["edges"]["a0.h3->a1.g0<k>"] == {
        "score": scores["a0.h3->a1.g0<k>"],
        "in_graph": "a0.h3->a1.g0<k>" in circuit,
    }
    assert sum(edge["in_graph"] for edge in data["edges"].values()) == 25
    assert min(edge["score"] for edge in data["edges"].values()) < 0
    assert set(data["nodes"]) == {port.name for port in scores.graph.writers} | {"logits"}
    assert {name for name, node in data["nodes"].items() if node["in_graph"]} == {n for n in circuit.nodes if ".g" not in n}
    json.dumps(data, allow_nan=False)


def test_a_mib_file_of_another_program_is_read():
    data = {
        "cfg": {"n_layers": 1, "n_heads": 2, "parallel_attn_mlp": False, "d_model": 4},
        "nodes": {"input": {"in_graph": True}},
        "edges": {"input->a0.h1<q>": {"score": -0.5, "in_graph": True}, "a0.h1->m0": {"score": 0.25, "in_graph": False}},
    }
    back = from_mib(data)
    assert back.scores.graph == Graph(1, 2, 2) and back.scores["input->a0.h1<q>"] == -0.5
    assert back.circuit.edges == ["input->a0.h1<q>"] and back.scores.record.method == "unknown"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edges": None}, "must hold an object 'edges'"),
        ({"cfg": {"n_heads": 2}}, "lacks 'n_layers'"),
        ({"edges": {"a0.h7->m0": {"score": 1.0}}}, "no writer called 'a0.h7'"),
        ({"edges": {"input->m0": {"score": None}}}, "must be an object with a number 'score'"),
        ({"edges": {"input->m0": 3}}, "must be an object with a number 'score'"),
    ],
)
def test_a_damaged_mib_file_is_explained(change, words):
    data = {"cfg": {"n_layers": 1, "n_heads": 2}, "nodes": {}, "edges": {"input->m0": {"score": 1.0, "in_graph": True}}}
    with pytest.raises(CircuitError, match=words):
        from_mib({**data, **change})


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(CircuitError, match="does not exist"):
        read_mib(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for read in (read_mib, read_node_link):
        with pytest.raises(CircuitError, match="cannot be read as JSON"):
            read(broken)
    with pytest.raises(CircuitError, match="cannot be read as GraphML"):
        read_graphml(broken)
    with pytest.raises(CircuitError, match="cannot be read as GraphML"):
        read_graphml(tmp_path / "none.graphml")


def scored_edges(graph: networkx.DiGraph) -> dict[str, float]:
    return {f"{a}->{b}": data["score"] for a, b, data in graph.edges(data=True) if data["kind"] != "part"}


@pytest.mark.parametrize("name", GRAPHS)
def test_networkx_holds_the_circuit_and_its_paths(name):
    scores, circuit = random_scores(GRAPHS[name], torch.float64)
    graph = to_networkx(scores, circuit)
    assert scored_edges(graph) == {edge: scores[edge] for edge in circuit.edges}
    assert networkx.is_directed_acyclic_graph(graph)
    pruned = prune(circuit)
    on_paths = networkx.descendants(graph, "input") & (networkx.ancestors(graph, "logits") | {"logits"})
    assert on_paths - {"logits"} == set(to_networkx(scores, pruned).nodes) - {"input", "logits"}
    back = from_networkx(graph)
    assert torch.equal(back.circuit.mask, circuit.mask)
    assert torch.equal(back.scores.values, scores.values * circuit.mask)
    assert back.scores.record == scores.record


def test_nodes_are_unique_and_the_same_in_another_process():
    scores, circuit = random_scores(GRAPHS["grouped"], torch.float64)
    graph = to_networkx(scores, circuit)
    code = (
        "from interp.circuits import Graph; g = Graph(2, 4, 2);"
        "print([p.name for p in g.writers + g.readers if p.kind not in ('mlp',)])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    names = [port.name for port in scores.graph.writers + scores.graph.readers if port.kind != "mlp"]
    assert run.stdout.strip() == str(names) and len(names) == len(set(names))
    assert set(graph.nodes) <= set(names) | {"m0", "m1"}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphml_opens_in_networkx_with_the_same_counts(name, tmp_path):
    scores, circuit = random_scores(GRAPHS[name], torch.float64)
    path = write_graphml(tmp_path / "circuit.graphml", scores, circuit)
    direct, read = to_networkx(scores, circuit), networkx.read_graphml(path)
    assert (read.number_of_nodes(), read.number_of_edges()) == (direct.number_of_nodes(), direct.number_of_edges())
    assert scored_edges(read) == scored_edges(direct)
    back = read_graphml(path)
    assert torch.equal(back.circuit.mask, circuit.mask) and torch.equal(back.scores.values, scores.values * circuit.mask)
    assert back.scores.record == scores.record


def test_node_link_round_trip(tmp_path):
    scores, circuit = traced()
    data = to_node_link(scores, circuit)
    assert {"nodes", "edges"} <= set(data) and "links" not in data
    back = read_node_link(write_node_link(tmp_path / "circuit.json", scores, circuit))
    assert torch.equal(back.scores.values.float(), scores.values * circuit.mask)
    with pytest.raises(CircuitError, match="node-link data must have"):
        from_node_link({"nodes": []})


def test_a_foreign_networkx_graph_is_refused():
    with pytest.raises(CircuitError, match="lacks the attributes n_layers"):
        from_networkx(networkx.DiGraph())


def dot_lines(text: str) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Node names and (source, target, attributes) of DOT text with quoted names."""
    edges = re.findall(r'^ +"([^"]+)" -> "([^"]+)" \[(.*)\];$', text, re.MULTILINE)
    ranks = re.findall(r"rank=same; (.*) }$", text, re.MULTILINE)
    return [name for rank in ranks for name in re.findall(r'"([^"]+)" \[', rank)], edges


@pytest.mark.parametrize("name", GRAPHS)
def test_dot_text_shows_every_edge(name, tmp_path):
    scores, circuit = random_scores(GRAPHS[name], torch.float64)
    text = write_dot(tmp_path / "circuit.dot", scores, circuit).read_text()
    assert text == to_dot(scores, circuit)
    nodes, edges = dot_lines(text)
    assert nodes == circuit.nodes and len(nodes) == len(set(nodes))
    drawn = [edge for edge in edges if "tooltip" in edge[2]]
    assert len(drawn) == circuit.n_edges
    assert {end for edge in edges for end in edge[:2]} <= set(nodes)
    for source, target, attributes in drawn:
        edge, score = re.search(r'tooltip="([^"]+): ([^"]+)"', attributes).groups()
        assert edge.startswith(f"{source}->{target}") and float(score) == pytest.approx(scores[edge], rel=1e-3)
        assert (POSITIVE in attributes) == (scores[edge] > 0) and (NEGATIVE in attributes) == (scores[edge] < 0)
        style = {"q": "solid", "k": "dashed", "v": "dotted"}.get(edge[-2] if edge.endswith(">") else "", "solid")
        assert f"style={style}" in attributes
    assert text.count("{") == text.count("}")


def test_dot_has_the_colours_of_the_circuit_page():
    page = (Path(views.__file__).parent / "static" / "base.css").read_text()
    assert f"--pos: {POSITIVE}; --neg: {NEGATIVE};" in page
    assert "Blue: corrupting the edge raises the metric, orange: lowers it" in to_dot(
        random_scores(Graph(1, 1, 1), torch.float64)[0]
    )


def test_dot_draws_shared_key_heads_as_nodes_of_their_own():
    scores, _ = random_scores(GRAPHS["grouped"], torch.float64)
    circuit = Circuit.from_edges(scores.graph, ["input->a0.g1<k>", "input->a0.g1<v>", "a0.h2->logits", "a0.h1->logits"])
    nodes, edges = dot_lines(to_dot(scores, circuit))
    assert "a0.g1" in nodes
    assert [edge[:2] for edge in edges if "arrowhead" in edge[2]] == [("a0.g1", "a0.h2")]


def test_empty_circuits_can_be_exported(tmp_path):
    scores, _ = traced()
    nothing = Circuit.empty(scores.graph)
    assert to_networkx(scores, nothing).number_of_edges() == 0
    assert read_graphml(write_graphml(tmp_path / "circuit.graphml", scores, nothing)).circuit.n_edges == 0
    assert dot_lines(to_dot(scores, nothing)) == ([], [])


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    scores, circuit = traced()
    path = write_mib(tmp_path / "circuit.json", scores, circuit)
    before = path.read_text()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_mib(path, scores, Circuit.empty(scores.graph))
    assert path.read_text() == before and [file.name for file in tmp_path.iterdir()] == ["circuit.json"]


def test_scores_and_circuit_must_be_on_one_graph():
    scores, _ = traced()
    with pytest.raises(CircuitError, match="but the circuit is on"):
        ScoredCircuit(scores, Circuit.empty(Graph(2, 4, 4)))
