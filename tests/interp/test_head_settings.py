"""The arguments of `head_scores`, what it refuses, and the result it returns."""

from __future__ import annotations

import json

import pytest
import torch
from head_models import random_model

from interp.errors import InterpError, PromptError
from interp.heads import HeadScores, head_scores
from interp.heads.sequences import fitting_distances
from interp.protocol import HookedModel
from models.zoo.handbuilt import UNUSED, HeadRule, Match, build, induction_model, single_head_model

# Settings and bad input -------------------------------------------------------------------------------------------------


def test_distances_shrink_together_to_fit():
    assert fitting_distances((20, 35, 50), 60) == (20, 35, 50)
    assert fitting_distances((20, 35, 50), 31) == (12, 21, 31)
    assert fitting_distances((20, 35, 50), 3) == (2, 3)
    scores = head_scores(random_model(n_ctx=25))
    assert scores.distance == (4, 8, 12) and scores.requested_distances == (20, 35, 50)
    small_vocabulary = head_scores(induction_model(11, 101))
    assert small_vocabulary.distance == (4, 7, 10)


def test_a_text_may_fill_the_context():
    model = random_model()
    assert head_scores(model, torch.randint(0, 40, (1, 48))).entropy.isfinite().all()


def test_some_layers_only():
    model = random_model()
    one, every = head_scores(model, layers=[1]), head_scores(model)
    assert one.layer == (1,)
    torch.testing.assert_close(one.entropy[0], every.entropy[1])
    torch.testing.assert_close(one.copying_effect[0], every.copying_effect[1])
    assert [head["layer"] for head in one.to_heads_json()["heads"]] == [1] * 4


def test_bos_is_a_choice():
    model = random_model()
    assert not head_scores(model, prepend_bos=False).prepend_bos
    assert not head_scores(random_model(bos_token_id=None)).prepend_bos
    with pytest.raises(PromptError, match="has none"):
        head_scores(random_model(bos_token_id=None), prepend_bos=True)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"distances": ()}, "distances must hold at least one"),
        ({"distances": (1, 5)}, "each 2 or more"),
        ({"distances": 20}, r"distances must be a list of whole numbers, such as \[20\], got 20"),
        ({"distances": (20.5,)}, "distances must be a list of whole numbers, got"),
        ({"layers": 1}, r"layers must be a list of whole numbers, such as \[1\], got 1"),
        ({"layers": "01"}, "layers must be a list of whole numbers"),
        ({"seed": 99999999999999999999}, "seed must be a whole number of at most 64 bits.*got 99999999999999999999"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"tokens": []}, "tokens is an empty prompt"),
        ({"tokens": [[]]}, "tokens is an empty prompt"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"layers": [0, 2]}, r"layers must be different numbers in 0..1"),
        ({"layers": []}, "layers must be"),
        ({"tokens": torch.tensor([[1, 40]])}, r"tokens must lie in 0..39, got 1..40"),
        ({"tokens": torch.tensor([[-1, 3]])}, r"got -1..3"),
        ({"tokens": torch.zeros(1, 0, dtype=torch.long)}, "at least one token"),
        ({"tokens": torch.zeros(1, 49, dtype=torch.long)}, "49 long, more than the model's context of 48"),
        ({"tokens": torch.zeros(1, 4)}, "whole-number ids"),
        ({"tokens": [[1, 2], [3]]}, "rows of token ids of one length"),
        ({"tokens": torch.ones(1, 4, dtype=torch.long), "prepend_bos": True}, "used as they are"),
        ({"tokens": torch.ones(1, 4, dtype=torch.long), "attention_mask": torch.ones(1, 3)}, r"shape \(1, 3\)"),
        ({"tokens": torch.ones(1, 4, dtype=torch.long), "attention_mask": torch.tensor([[1, 0, 1, 1]])}, "row 0 must be one run"),
        ({"tokens": torch.ones(1, 4, dtype=torch.long), "attention_mask": torch.zeros(1, 4)}, "got 0 runs"),
    ],
)
def test_bad_input_is_named(arguments: dict, message: str, unchecked: None):
    with pytest.raises(InterpError, match=message):
        head_scores(random_model(), **arguments)


def test_no_room_for_a_repeat():
    with pytest.raises(PromptError, match="room for a repeat distance of 1 only"):
        head_scores(random_model(n_ctx=4))


# The result -------------------------------------------------------------------------------------------------------------


def test_heads_json_keeps_its_schema(tmp_path):
    scores = head_scores(induction_model(60, 101))
    data = json.loads(scores.write_heads_json(tmp_path / "heads.json").read_text())
    assert list(data)[:8] == ["schema", "model", "n_layers", "n_heads", "seed", "loss_first_half", "loss_second_half", "heads"]
    assert data["schema"] == "heads/1" and (data["n_layers"], data["n_heads"]) == (2, 1)
    head = data["heads"][1]
    fixed = [
        "layer",
        "head",
        "induction",
        "induction_min",
        "induction_baseline",
        "previous_token",
        "duplicate_token",
        "first_token",
    ]
    fixed += ["entropy", "normalized_entropy", "normalized_entropy_no_first", "logit_std", "temperature", "labels"]
    assert list(head)[: len(fixed)] == fixed
    assert head["labels"] == ["induction"] and set(head["evidence"]) == {"induction"}
    uniform = head_scores(single_head_model("uniform", 60, 101)).to_heads_json()["heads"][0]
    assert uniform["temperature"] is None and uniform["logit_std"] == 0.0
    assert head_scores(induction_model(41, 41), torch.arange(9)).to_heads_json()["heads"][0]["induction"] is None
    assert head["n_targets"]["induction"] == 4 * (20 + 35 + 50)


def test_a_saved_result_is_the_same_when_loaded(tmp_path):
    for model in (induction_model(41, 81), single_head_model("sink", 41, 81), single_head_model("uniform", 41, 81)):
        scores = head_scores(model)
        again = HeadScores.load(scores.save(tmp_path / "scores.json"))
        assert again.to_dict() == scores.to_dict() and again.labels == scores.labels
        assert all(torch.equal(again.tensors()[n].nan_to_num(-7), t.nan_to_num(-7)) for n, t in scores.tensors().items())


def test_top_and_tables():
    scores = head_scores(build([[UNUSED, HeadRule((Match("position", "position", -1),))]], 60, 101, bos_token_id=0))
    best = scores.top("previous_token", 1)[0]
    assert (best.name, best.value, best.labels) == ("0.1", 1.0, ("previous-token",))
    assert [head.name for head in scores.top("temperature")] == ["0.0", "0.1"]  # infinite first
    assert len(scores.top("ablation_effect")) == 0
    with pytest.raises(InterpError, match="column must be one of"):
        scores.top("sharpness")
    frame = scores.to_pandas()
    assert list(frame["labels"]) == ["", "previous-token"] and len(frame) == 2
    assert len(scores.to_pandas(("score", "distance", "layer", "head"))) == 6 * 3 * 2
    table = scores.table(1, "previous_token")
    assert table.row_count == 1 and "1.000" in list(table.columns[1].cells)
    assert "previous token 0.1 (1.00)" in repr(scores)
    assert scores.labelled("previous-token") == ((0, 1),)


def test_our_model_fits_the_protocol():
    assert isinstance(random_model(), HookedModel)
    assert not isinstance(torch.nn.Linear(1, 1), HookedModel)
