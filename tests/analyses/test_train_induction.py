"""The training recipe: data that only induction predicts, and a circuit that forms with two layers and not with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from analyses import train_induction as script
from analyses.train_induction import TrainConfig, evaluate, new_model, train, training_batch
from interp.run import generator
from models import load_model


def config(**changes: object) -> TrainConfig:
    return TrainConfig(progress=False, **changes)


def test_training_rows_repeat_with_a_random_period() -> None:
    tokens = training_batch(config(batch=200), generator(0))
    assert tokens.shape == (200, 64) and (tokens[:, 0] == 64).all() and tokens[:, 1:].max() < 64
    periods = []
    for row in tokens[:, 1:]:
        period = next(n for n in range(1, 63) if torch.equal(row[n:], row[:-n]))
        assert 8 <= period <= 28
        periods.append(period)
    assert set(periods) == set(range(8, 29))


def test_weights_and_data_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first, again, other = (dict(new_model(config(), seed).named_parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) and not torch.equal(first[name], other[name]) for name in first)
    stds = [parameter.std().item() for parameter in first.values()]
    assert stds == pytest.approx([1 / 8] * len(stds), rel=0.05)
    assert torch.equal(state, torch.get_rng_state()), "the global generator is left alone"


def test_an_untrained_model_is_at_chance() -> None:
    point = evaluate(new_model(config(), 0), config(), 0)
    assert point.second_half_loss == pytest.approx(point.first_half_loss, abs=0.2)
    assert point.induction < 0.1 and point.previous_token < 0.15


def test_two_layers_form_induction_heads() -> None:
    """The drop comes between steps 300 and 500, whatever the seed."""
    _, curve = train(config(steps=500, eval_every=500), 0)
    start, end = curve
    assert (start.step, end.step) == (0, 500)
    assert end.second_half_loss < 0.6 and end.first_half_loss > 4
    assert end.induction > 0.5 and end.induction_min > 0.4
    assert end.previous_token > 2 * start.previous_token


def test_one_layer_does_not() -> None:
    _, curve = train(config(steps=500, eval_every=500, layers=1), 0)
    assert curve[-1].induction < 0.15 and curve[-1].second_half_loss > 2.5


def test_script_writes_a_model_that_loads(tmp_path: Path) -> None:
    flags = "--seeds 3 4 --steps 4 --eval-every 2 --batch 8 --no-progress".split()
    assert script.main(["--out", str(tmp_path), *flags]) == 0
    training = json.loads((tmp_path / "training.json").read_text())
    assert training["command"] == "python -m analyses.train_induction --seeds 3 4 --steps 4 --batch 8 --eval-every 2"
    assert training["seed_of_weights"] == 3
    assert [[point["step"] for point in curve["points"]] for curve in training["curves"]] == [[0, 2, 4]] * 2
    assert json.loads((tmp_path / "manifest.json").read_text())["seed"] == 3
    model, trained = load_model(tmp_path), train(config(steps=4, eval_every=2, batch=8), 3)[0]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trained.parameters(), strict=True))
    assert model.cfg.bos_token_id == 64 and model.cfg.default_prepend_bos


def test_shipped_model_is_the_trained_one() -> None:
    """Its size, its recorded curve, and that the weights are those the curve ends with."""
    folder = Path(script.__file__).parent.parent / "models" / "zoo" / "induction-2l"
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 300_000
    training = json.loads((folder / "training.json").read_text())
    assert training["command"] == "python -m analyses.train_induction"
    assert len(training["curves"]) == 3 and training["seed_of_weights"] == training["curves"][0]["seed"]
    for curve in training["curves"]:
        losses = {point["step"]: point["second_half_loss"] for point in curve["points"]}
        assert losses[200] > 3 and losses[500] < 0.6
    end = training["curves"][0]["points"][-1]
    now = evaluate(load_model("induction-2l"), config(), end["step"])
    assert now.second_half_loss == pytest.approx(end["second_half_loss"], abs=1e-3)
    assert now.induction == pytest.approx(end["induction"], abs=1e-3) and now.induction > 0.8
    assert now.previous_token == pytest.approx(end["previous_token"], abs=1e-3) and now.previous_token > 0.9
