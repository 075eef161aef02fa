"""The scripts on a model with recurrent layers: they run on what is defined, and say what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyses import head_temperature, induction_heads, report, trace_circuit
from tests.models.variants import tiny_model

QUIET = ["--no-progress"]


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory) -> str:
    """Two layers of gated delta rule, then one of attention."""
    folder = tmp_path_factory.mktemp("hybrid")
    tiny_model("gated_delta_hybrid").save(folder)
    return str(folder)


def test_heads_of_recurrent_layers_have_signed_scores_and_no_entropy(hybrid: str, tmp_path: Path) -> None:
    assert induction_heads.main([hybrid, "--out", str(tmp_path), "--distances", "5", "9", *QUIET]) == 0
    heads = json.loads((tmp_path / "heads.json").read_text())
    assert [each["layer"] for each in heads["left_out"]] == [0, 1] and len(heads["heads"]) == 12
    assert [head["entropy"] is None for head in heads["heads"]] == [True] * 8 + [False] * 4
    assert any(head["previous_token"] < 0 for head in heads["heads"][:8])
    assert "layers 0, 1, as weights there are signed" in (tmp_path / "report.html").read_text()


def test_temperature_counts_heads_that_have_one(hybrid: str, tmp_path: Path) -> None:
    assert head_temperature.main([hybrid, "--out", str(tmp_path), "--lengths", "16", *QUIET]) == 0
    at = json.loads((tmp_path / "temperature.json").read_text())["lengths"][-1]
    assert at["n_unmeasured"] == 8
    assert sum(at["shares"][name] for name in ("sharp", "medium", "diffuse")) == pytest.approx(1.0)
    assert "8 heads are not counted" in (tmp_path / "report.html").read_text()


def test_circuit_has_one_reader_per_recurrent_layer(hybrid: str, tmp_path: Path) -> None:
    assert trace_circuit.main([hybrid, "--out", str(tmp_path), "--n-pairs", "2", *QUIET]) == 0
    circuit = json.loads((tmp_path / "circuit.json").read_text())
    readers = {edge.split("->")[1] for edge in circuit["edges"]}
    assert {"a0<x>", "a1<x>", "a2.h3<q>", "a2.g1<k>", "m0"} <= readers and "a0.h0<q>" not in readers
    assert len(circuit["cfg"]["layers"]) == 3 and "layers 0, 1 (GatedDelta)" in circuit["note"]
    assert "layers 0, 1 (GatedDelta)" in (tmp_path / "report.html").read_text()


def test_the_whole_report(hybrid: str, tmp_path: Path) -> None:
    assert report.main([hybrid, "--out", str(tmp_path), "--n-pairs", "2", *QUIET]) == 0
    assert "L0 mixer" in (tmp_path / "report.html").read_text()
