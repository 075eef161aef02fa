"""Manifest, resume, atomic files and strict JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch

from interp.run import Manifest, cached_result, fingerprint, generator, key_of, plain, progress, write_json, write_text


def test_plain_is_strict_json() -> None:
    @dataclass
    class Point:
        x: float
        y: torch.Tensor

    value = {
        "a": float("nan"),
        1: (float("inf"), torch.tensor([1.5, float("nan")])),
        "p": Point(1.0, torch.tensor(2)),
        "s": {3, 1},
    }
    assert plain(value) == {"a": None, "1": [None, [1.5, None]], "p": {"x": 1.0, "y": 2}, "s": [1, 3]}
    json.dumps(plain(value), allow_nan=False)


def test_write_is_atomic(tmp_path, monkeypatch) -> None:
    path = tmp_path / "deep" / "file.json"
    write_json(path, {"a": 1})
    assert json.loads(path.read_text()) == {"a": 1}

    def fail(*_args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_text(path, "half")
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == ["file.json"], "no temporary file stays behind"


def test_resume_skips_finished_units(tmp_path) -> None:
    calls: list[str] = []

    def compute() -> dict:
        calls.append("run")
        return {"score": torch.tensor([1.0, float("nan")])}

    path = tmp_path / "unit.json"
    first = cached_result(path, key_of(x=1), compute)
    assert first.value == {"score": [1.0, None]} and not first.resumed
    again = cached_result(path, key_of(x=1), compute)
    assert again.value == first.value and again.resumed and len(calls) == 1
    cached_result(path, key_of(x=2), compute)
    assert len(calls) == 2, "another key computes again"
    cached_result(path, key_of(x=2), compute, force=True)
    assert len(calls) == 3
    path.write_text('{"key": "dam')
    assert cached_result(path, key_of(x=2), compute).value == first.value and len(calls) == 4


def test_key_depends_on_every_input_and_not_on_order() -> None:
    assert key_of(a=1, b=[2]) == key_of(b=[2], a=1)
    assert len({key_of(a=1), key_of(a=2), key_of(b=1), key_of(a=torch.tensor([1]))}) == 4


def test_fingerprint_sees_every_weight() -> None:
    model = torch.nn.Linear(40, 300)
    before = fingerprint(model)
    assert before == fingerprint(model)
    with torch.no_grad():
        model.weight[299, 17] += 1e-3
    assert fingerprint(model) != before
    assert fingerprint(torch.nn.Linear(4, 3).to(torch.bfloat16))


def test_manifest(tmp_path) -> None:
    model = torch.nn.Linear(2, 2)
    manifest = Manifest.start(model, "toy", seed=7, prepend_bos=False, prompts={"ioi": {"sha256": "x"}})
    path = manifest.finished(units={"heads": 1.0}).write(tmp_path)
    data = json.loads(path.read_text())
    assert data["model"] == "toy" and data["seed"] == 7 and data["dtype"] == "float32" and data["device"] == "cpu"
    assert data["seconds"] >= 0 and data["versions"]["torch"] == torch.__version__ and data["command"]
    assert data["weights_sha256"] == fingerprint(model) and data["prompts"] == {"ioi": {"sha256": "x"}}
    assert data["prepend_bos"] is False and data["started"].endswith("+00:00")


def test_generator_leaves_the_global_one_alone() -> None:
    state = torch.get_rng_state()
    assert torch.equal(torch.rand(3, generator=generator(4)), torch.rand(3, generator=generator(4)))
    assert torch.equal(state, torch.get_rng_state())


def test_progress_is_silent_when_off(capsys) -> None:
    assert list(progress(range(3), description="x", enabled=False)) == [0, 1, 2]
    assert list(progress(range(3), description="x")) == [0, 1, 2], "no terminal: off by itself"
    assert capsys.readouterr().err == ""
    bar = progress(total=2, description="count", enabled=True)
    bar.update(2)
    bar.close()
    assert "count" in capsys.readouterr().err
