"""The scripts on models for which a part is not defined: the rest is shown, and one sentence says what is missing and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyses import head_temperature, induction_heads, report, trace_circuit
from models.build import make_model
from tests.models.variants import tiny_config, tiny_model

QUIET = ["--no-progress"]
NO_HEAD = "circuits end at logits, and this model has no head"
NO_CIRCUIT = {"bare_encoder": NO_HEAD, "gemma4": "layer 0 also adds embeddings of the tokens of its own"}


def saved(variant: str, folder: Path) -> str:
    tiny_model(variant).save(folder / variant)
    return str(folder / variant)


@pytest.mark.parametrize("variant", ["mamba2", "differential"])
def test_temperature_of_a_model_without_any_distribution_is_one_sentence(variant: str, tmp_path: Path, capsys) -> None:
    model, out = saved(variant, tmp_path), tmp_path / "out"
    assert head_temperature.main([model, "--out", str(out), *QUIET]) == 0
    found, page = json.loads((out / "temperature.json").read_text()), (out / "report.html").read_text()
    said = head_temperature.answer(found)
    assert said.startswith("No layer has a distribution") and said.count(".") == 1
    assert "layers 0, 1, 2 are left out, as weights there are signed" in said
    printed = capsys.readouterr().out
    assert said in page and said in printed and "0%" not in printed
    assert "median" not in page and 'data-view="head_map"' not in page
    at = found["lengths"][-1]
    assert at["n_unmeasured"] == len(at["heads"]) and set(at["shares"].values()) == {0.0}
    assert [each["layer"] for each in at["left_out"]] == [0, 1, 2]


def test_shares_are_of_measured_heads() -> None:
    none = dict.fromkeys(head_temperature.MEASURES)
    signed, sharp = {**none, "first_token": 0.9}, {**none, "entropy": 0.1, "normalized_entropy": 0.1, "first_token": 0.1}
    shares = head_temperature.summary([signed, signed, sharp])["shares"]
    assert shares["sharp"] == 1.0 and shares["sink"] == 0.0


@pytest.mark.parametrize("variant", ["mamba2", "differential"])
def test_report_of_a_model_without_any_distribution(variant: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert report.main([saved(variant, tmp_path), "--out", str(out), "--n-pairs", "2", *QUIET]) == 0
    page = (out / "report.html").read_text()
    assert "No layer has a distribution" in page and 'data-view="circuit"' in page
    assert json.loads((out / "manifest.json").read_text())["left_out"] == {}


@pytest.mark.parametrize("variant", ["bare_encoder", "sinusoidal", "gemma4"])
def test_a_circuit_that_cannot_be_traced_is_one_line(variant: str, tmp_path: Path, capsys) -> None:
    assert trace_circuit.main([saved(variant, tmp_path), "--out", str(tmp_path / "out"), "--n-pairs", "2", *QUIET]) == 2
    error = capsys.readouterr().err
    assert NO_CIRCUIT.get(variant, NO_HEAD) in error and error.count("\n") == 1


@pytest.mark.parametrize("variant", NO_CIRCUIT)
def test_report_without_a_circuit_shows_the_rest(variant: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert report.main([saved(variant, tmp_path), "--out", str(out), "--n-pairs", "2", *QUIET]) == 0
    page, manifest = (out / "report.html").read_text(), json.loads((out / "manifest.json").read_text())
    printed = capsys.readouterr().out
    assert page.count('data-view="head_map"') == 2 and 'data-view="circuit"' not in page
    assert '<section class="part" id="circuit"><h2>Circuit</h2><p class="prose">No circuit: ' in page
    assert NO_CIRCUIT[variant] in manifest["left_out"]["circuit"]
    assert NO_CIRCUIT[variant] in printed and "heads by induction score" in printed and "median of" in printed
    assert (out / "heads.json").exists() and (out / "temperature.json").exists() and not (out / "circuit.json").exists()


def test_an_encoder_decoder_is_refused_in_one_line(tmp_path: Path, capsys) -> None:
    encoder = tiny_config("t5_encoder", head="none")
    make_model(tiny_config("t5_decoder", encoder=encoder, cross_attention=True)).save(tmp_path / "model")
    for script in (report, induction_heads, head_temperature, trace_circuit):
        assert script.main([str(tmp_path / "model"), "--out", str(tmp_path / "out"), *QUIET]) == 2, script
        error = capsys.readouterr().err
        assert "encoder-decoder" in error and error.count("\n") == 1
    assert not (tmp_path / "out" / "report.html").exists()
