"""trace_circuit as a script: the induction circuit is found by keys, files have the fixed schema, mistakes give one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from analyses import trace_circuit as script
from analyses._composition import composition_sentences, compositions
from analyses._run import Run
from analyses.induction_heads import HeadsConfig, measure
from analyses.trace_circuit import CircuitConfig, prompt_pairs, trace
from interp.circuits import CircuitError, EdgeScores, Graph
from interp.prompts import PromptPairs
from models import HookedTransformer, TransformerConfig, load_model
from models.zoo.handbuilt import induction_model

SMALL = TransformerConfig(
    n_layers=2, d_model=16, n_heads=4, d_head=4, n_kv_heads=2, d_vocab=20, n_ctx=12, d_mlp=16, norm="rms_norm", positions="rotary"
)
PROMPTS = [
    {"clean": [1, 2, 3, 4], "corrupt": [1, 5, 3, 4], "answers": [6], "wrong_answers": [7]},
    {"clean": [2, 3, 4], "corrupt": [5, 3, 4], "answers": [8, 9], "wrong_answers": [10]},
]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    model = HookedTransformer(SMALL)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=draw)
    folder = tmp_path_factory.mktemp("small")
    model.save(folder)
    return str(folder)


@pytest.fixture
def pairs_file(tmp_path: Path) -> str:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({"prompts": PROMPTS}))
    return str(path)


def traced(out: Path, **options: object) -> script.Traced:
    config = CircuitConfig(model="induction-2l", out=out, progress=False, **options)
    return trace(Run(config), config)


@pytest.mark.parametrize("ablation", ["zero", "mean"])
def test_the_circuit_evaluated_is_the_one_on_the_curve(tmp_path: Path, ablation: str) -> None:
    found = traced(tmp_path, ablation=ablation, top=12)
    assert found.circuit.n_edges == 12, "under zero and mean ablation edges off every path are not without effect"
    at = {point["n_edges"]: point["faithfulness"] for point in found.curves["magnitude"]["points"]}
    assert found.faithfulness["faithfulness"] == pytest.approx(at[12], abs=1e-6)


def test_induction_circuit_is_found_and_faithful(tmp_path: Path) -> None:
    found = traced(tmp_path)
    top = [edge.edge for edge in found.scores.top(8)]
    assert top[0] == "input->a0.h0<v>"
    assert set(top[1:]) >= {f"a0.h0->a1.h{head}<k>" for head in range(4)}, "previous-token head into the keys of layer 1"
    assert found.scores["a0.h0->a1.h3<k>"] < -1, "corrupting an edge that helps lowers the metric"
    assert found.faithfulness["faithfulness"] == pytest.approx(1.0, abs=0.1)
    assert set(found.curves) == {"magnitude", "benefit"}
    for curve in found.curves.values():
        assert curve["points"][0]["faithfulness"] == 0 and curve["points"][-1]["faithfulness"] == 1
    assert found.faithfulness["n_edges"] == found.circuit.n_edges <= 20 < len(found.scores) == 81
    assert "repeated random tokens" in found.faithfulness["statement"] and "patching ablation" in found.faithfulness["statement"]


def test_composition_is_said_in_words(tmp_path: Path) -> None:
    config = HeadsConfig(model="induction-2l", out=tmp_path, progress=False)
    heads = measure(Run(config), config)
    words = " ".join(composition_sentences(heads, traced(tmp_path).scores))
    assert "compose into the induction heads by K" in words and "Strongest: a0.h0->a1.h" in words


@pytest.mark.parametrize("reader, verdict", [("k", "by K: 100%"), ("q", "by Q: 100%"), ("v", "by V: 100%")])
def test_composition_follows_the_edges(reader: str, verdict: str) -> None:
    """Known edges of a grouped model: heads 0.1 and 1.0 are previous-token, head 1.5, in group 1 of two, is induction."""
    graph = Graph(2, 6, 2, False, True)
    labels = {(0, 1): "previous-token", (1, 0): "previous-token", (1, 5): "induction"}
    heads = {"heads": [{"layer": layer, "head": head, "labels": [label]} for (layer, head), label in labels.items()]}
    values = torch.zeros(graph.allowed.shape)
    edge = f"a0.h1->a1.h5<{reader}>" if reader == "q" else f"a0.h1->a1.g1<{reader}>"
    values[graph.edge(edge)] = -2.0
    values[graph.edge("a0.h0->a1.h0<q>")] = 9.0
    scores = EdgeScores(graph, values)
    assert compositions(heads, scores)[reader].edges == ((edge, -2.0),)
    assert verdict in composition_sentences(heads, scores)[0]
    heads["heads"][0]["labels"] = []
    assert "no such composition" in composition_sentences(heads, scores)[0]


def test_handbuilt_circuit(tmp_path: Path) -> None:
    """By exact patching, as the gradient of one-hot attention is 0: the four edges of the construction, no others."""
    folder = tmp_path / "model"
    induction_model(30, 61).save(folder)
    config = CircuitConfig(model=str(folder), out=tmp_path / "out", method="exact", top=4, progress=False)
    found = trace(Run(config), config)
    strong = {edge for edge, score in found.scores.items() if abs(score) > 1}
    assert "a0.h0->a1.h0<k>" in strong and "a1.h0->logits" in strong and "input->a0.h0<v>" in strong
    assert not any(edge.startswith("a0.h0->a1.h0<") and not edge.endswith("<k>") for edge in strong)
    assert "input->a1.h0<k>" not in strong, "the keys match what the previous-token head wrote"


def test_files_have_the_fixed_schema(small: str, pairs_file: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ["--pairs", pairs_file, "--method", "eap", "--top", "60", "--no-progress", "--out", str(out)]
    assert script.main([small, *flags]) == 0
    circuit = json.loads((out / "circuit.json").read_text())
    expected = {"method": "eap", "metric": "logit_diff", "difference": "corrupt-clean", "ungrouped": False, "n_pairs": 2}
    assert {key: circuit[key] for key in expected} == expected
    assert len(circuit["edges"]) == Graph.of(load_model(small)).n_edges
    assert any(edge["score"] < 0 for edge in circuit["edges"].values()), "signs are kept"
    kept = [name for name, edge in circuit["edges"].items() if edge["in_graph"]]
    assert (
        0 < len(kept) <= 60
        and all("->" in name for name in kept)
        and any("g" in name.split("->")[1] for name in circuit["edges"])
    )
    assert (out / "circuit.dot").read_text().startswith("digraph") and "<graphml" in (out / "circuit.graphml").read_text()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["prompts"]["circuit"]["n_pairs"] == 2 and manifest["prepend_bos"] is False
    assert json.loads((out / "faithfulness.json").read_text())["curves"]["magnitude"]["points"][-1]["faithfulness"] == 1


def test_ungrouped_has_a_key_per_head(small: str, pairs_file: str, tmp_path: Path) -> None:
    def edges(*flags: str) -> dict[str, float]:
        out = tmp_path / f"out{len(flags)}"
        assert script.main([small, "--pairs", pairs_file, "--no-progress", "--out", str(out), *flags]) == 0
        return {name: edge["score"] for name, edge in json.loads((out / "circuit.json").read_text())["edges"].items()}

    grouped, ungrouped = edges(), edges("--ungrouped")
    assert "a0.h1->a1.g0<k>" in grouped and "a0.h1->a1.g0<k>" not in ungrouped
    both = ungrouped["a0.h1->a1.h0<k>"] + ungrouped["a0.h1->a1.h1<k>"]
    assert both == pytest.approx(grouped["a0.h1->a1.g0<k>"], abs=1e-5)


def test_resume_recomputes_only_what_changed(small: str, pairs_file: str, tmp_path: Path) -> None:
    def times(*flags: str) -> dict[str, int]:
        assert script.main([small, "--pairs", pairs_file, "--no-progress", "--out", str(tmp_path / "out"), *flags]) == 0
        return {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out" / "units").iterdir()}

    first, again, ablated = times(), times(), times("--ablation", "zero")
    assert first == again
    assert ablated["edges.json"] == first["edges.json"] and ablated["curve-magnitude.json"] != first["curve-magnitude.json"]
    assert times("--ablation", "zero", "--force")["edges.json"] != first["edges.json"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"clean": [1, 2]}, "pair 0: clean and corrupt must have the same number of tokens, got 2 and 4"),
        ({"answers": []}, "pair 0 must have at least one answer"),
        ({"clean": [1, 2, 3, 99]}, "token id 99, outside the vocabulary 0..19"),
        ({"clean": [], "corrupt": []}, "pair 0, clean is an empty prompt"),
        ({"clean": [1] * 13, "corrupt": [2] * 13}, "13 tokens, more than the model's context of 12"),
        ({"clean": "text", "corrupt": "text"}, "no tokenizer, so prompts must be lists of token ids"),
        ({"wrong_answers": []}, "needs wrong answers"),
    ],
)
def test_bad_pairs_give_one_line(change: dict, message: str, small: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({"prompts": [PROMPTS[0] | change]}))
    assert script.main([small, "--pairs", str(path), "--no-progress", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--pairs", "missing.json"], "prompt file missing.json does not exist"),
        (["--top", "0"], "--top must be at least 1"),
        (["--bos"], "needs a model with a BOS token"),
    ],
)
def test_bad_flags_give_one_line(flags: list[str], message: str, small: str, tmp_path: Path, capsys) -> None:
    assert script.main([small, "--no-progress", "--out", str(tmp_path), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_built_in_pairs_fit_small_contexts(small: str) -> None:
    config = CircuitConfig(model=small, n_pairs=3)
    pairs = prompt_pairs(load_model(small), config)
    assert isinstance(pairs, PromptPairs) and len(pairs) == 3 and pairs.clean.shape[1] <= 12


def test_top_is_capped() -> None:
    assert [script.n_edges_asked(*pair) for pair in ((None, 81), (None, 70_651), (200, 81), (5, 81), (None, 3))] == [
        20,
        200,
        81,
        5,
        1,
    ]
    with pytest.raises(CircuitError, match="at least 1 edge"):
        script.n_edges_asked(-1, 81)
