"""induction_heads and head_temperature on models whose heads are known: built by hand, shipped, or real."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from analyses import head_temperature, induction_heads
from analyses._passages import passages, random_passages, text_passages
from analyses.head_temperature import CLASSES, MEASURES, answer, summary
from models import HookedTransformer, TransformerConfig, load_model
from models.zoo.handbuilt import induction_model, single_head_model

FIXED = (
    "layer head induction induction_min induction_baseline previous_token duplicate_token first_token entropy "
    "normalized_entropy normalized_entropy_no_first logit_std temperature labels"
).split()


@pytest.fixture
def ideal(tmp_path: Path) -> str:
    folder = tmp_path / "ideal"
    induction_model(30, 61).save(folder)
    return str(folder)


def test_ideal_heads_score_one(ideal: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    assert induction_heads.main([ideal, "--out", str(out), "--distances", "10", "15", "20", "--no-progress"]) == 0
    heads = json.loads((out / "heads.json").read_text())
    assert heads["schema"] == "heads/1" and [heads[key] for key in ("n_layers", "n_heads", "seed")] == [2, 1, 0]
    previous, induction = heads["heads"]
    assert all(key in previous for key in FIXED)
    assert induction["induction"] == induction["induction_min"] == pytest.approx(1.0, abs=1e-6)
    assert previous["previous_token"] == pytest.approx(1.0, abs=1e-6)
    assert "induction" in induction["labels"] and "previous-token" in previous["labels"]
    assert heads["loss_second_half"] < 1e-3 < heads["loss_first_half"]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["seed"] == 0 and manifest["prepend_bos"] is True and len(manifest["prompts"]) == 3
    printed = capsys.readouterr().out
    assert printed.index(" 1.0 ") < printed.index(" 0.0 "), "sorted by induction score"


def test_second_run_resumes_and_seed_changes_the_prompts(tmp_path: Path) -> None:
    def run(*flags: str) -> tuple[dict, dict]:
        assert induction_heads.main(["induction-2l", "--out", str(tmp_path), "--no-progress", *flags]) == 0
        return tuple(json.loads((tmp_path / name).read_text()) for name in ("heads.json", "manifest.json"))

    heads, manifest = run()
    unit = tmp_path / "units" / "heads.json"
    before = unit.stat().st_mtime_ns
    assert run()[0] == heads and unit.stat().st_mtime_ns == before
    other, other_manifest = run("--seed", "1")
    assert unit.stat().st_mtime_ns != before and other["heads"] != heads["heads"]
    hashes = [sorted(record["sha256"] for record in m["prompts"].values()) for m in (manifest, other_manifest)]
    assert not set(hashes[0]) & set(hashes[1])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere"], "there is no folder, file or model called 'nowhere'"),
        (["induction-2l", "--distances", "1"], "distances must hold"),
        (["induction-2l", "--batch", "0"], "batch must be at least 1"),
    ],
)
def test_bad_input_gives_one_line(arguments: list[str], message: str, tmp_path: Path, capsys) -> None:
    assert induction_heads.main([*arguments, "--out", str(tmp_path / "out"), "--no-progress"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_temperature_of_known_heads(tmp_path: Path) -> None:
    """A uniform head is diffuse, linear and hot; a sink is sharp, frozen and a sink."""
    expected = {"uniform": {"diffuse", "hot", "near-linear"}, "sink": {"sharp", "frozen", "sink"}}
    for kind, classes in expected.items():
        folder, out = tmp_path / kind, tmp_path / f"{kind}-out"
        single_head_model(kind, 40, 64).save(folder)
        assert head_temperature.main([str(folder), "--out", str(out), "--lengths", "21", "61", "--no-progress"]) == 0
        result = json.loads((out / "temperature.json").read_text())
        assert [at["length"] for at in result["lengths"]] == [21, 61]
        for at in result["lengths"]:
            assert {name for name, share in at["shares"].items() if share == 1.0} == classes
            assert set(at["shares"].values()) <= {0.0, 1.0}
    head = json.loads((tmp_path / "uniform-out" / "temperature.json").read_text())["lengths"][1]["heads"][0]
    assert head["normalized_entropy"] == pytest.approx(1.0, abs=1e-5) and head["temperature"] is None
    assert head["entropy"] == pytest.approx(sum(math.log(i + 1) for i in range(61)) / 61, abs=1e-4)


def test_summary_counts_undefined_values_nowhere() -> None:
    head = dict.fromkeys(MEASURES, 0.5) | {"layer": 0, "head": 0}
    heads = [head, head | {"normalized_entropy": 0.9, "normalized_entropy_no_first": None}, head | {"normalized_entropy": 0.1}]
    found = summary(heads)
    assert found["quantiles"]["normalized_entropy"]["50%"] == 0.5
    assert found["quantiles"]["normalized_entropy_no_first"]["95%"] == 0.5
    assert [found["shares"][name] for name in ("sharp", "medium", "diffuse")] == pytest.approx([1 / 3] * 3)
    nothing = summary([dict.fromkeys(MEASURES) | {"layer": 0, "head": 0}])
    assert set(nothing["quantiles"].values()) == {None} and set(nothing["shares"].values()) == {0.0}
    assert set(found["shares"]) == set(CLASSES)


class Letters:
    """One token per character."""

    def encode(self, text: str, prepend_bos: bool = False) -> list[int]:
        return [ord(letter) % 50 for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def token_string(self, token: int) -> str:
        return chr(token)


@pytest.fixture
def reader() -> HookedTransformer:
    model = HookedTransformer(
        TransformerConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=60, n_ctx=32, bos_token_id=55)
    )
    model.tokenizer = Letters()
    return model


def test_text_is_cut_into_consecutive_pieces(reader: HookedTransformer) -> None:
    text = "".join(chr(50 + i % 50) for i in range(45))
    plain = text_passages(reader, text, "t", (8, 16, 64), 20, with_bos=False)
    assert [(p.length, len(p.tokens)) for p in plain] == [(8, 2), (16, 1)], "64 exceeds the context; 20 tokens per length at most"
    assert plain[0].tokens.flatten().tolist() == [i % 50 for i in range(16)]
    (first, *_) = text_passages(reader, text, "t", (8,), 24, with_bos=True)
    assert first.tokens[:, 0].tolist() == [55] * 3 and first.tokens[:, 1:].flatten().tolist() == [i % 50 for i in range(21)]
    assert first.prepend_bos


def test_built_in_passage_is_long_enough(reader: HookedTransformer) -> None:
    (only,) = passages(reader, None, (32,), 10**6, False, 0)
    words = (Path(head_temperature.__file__).parent / "data" / "prose.txt").read_text().split()
    assert 1000 <= len(words) <= 1300 and only.source == "the toolkit's own passage" and len(only.tokens) > 150


def test_random_passages_shrink_to_the_context() -> None:
    model = load_model("induction-2l")
    found = random_passages(model, (64, 256, 1024), 256, True, 0)
    assert [p.length for p in found] == [15, 31, 63]
    for passage in found:
        assert (passage.tokens[:, 0] == 64).all()
        half = passage.length // 2
        assert torch.equal(passage.tokens[:, 1 : 1 + half], passage.tokens[:, 1 + half :])


def test_temperature_errors(tmp_path: Path, capsys) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words")
    for flags, message in (
        (["--text", str(text)], "no tokenizer to read"),
        (["--lengths", "4"], "lengths must be at least 8"),
    ):
        assert head_temperature.main(["induction-2l", "--out", str(tmp_path / "out"), "--no-progress", *flags]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_answer_is_in_words(tmp_path: Path, capsys) -> None:
    assert head_temperature.main(["induction-2l", "--out", str(tmp_path), "--no-progress"]) == 0
    result = json.loads((tmp_path / "temperature.json").read_text())
    assert answer(result) in capsys.readouterr().out
    assert "median of 8 heads" in answer(result) and "50% put more than 0.3" in answer(result)
