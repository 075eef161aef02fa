"""Metrics against numbers worked by hand, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from circuit_helpers import random_pairs

from interp.circuits import METRICS, CircuitError
from interp.circuits.metrics import resolve_metric
from interp.prompts import PromptPairs


def pairs_with(answers: list[list[int]], wrong: list[list[int]]) -> PromptPairs:
    n = len(answers)
    tokens = torch.zeros(n, 2, dtype=torch.long)
    return PromptPairs(
        tokens,
        tokens,
        torch.tensor(answers).reshape(n, -1),
        torch.tensor(wrong).reshape(n, -1),
        torch.ones_like(tokens, dtype=torch.bool),
        torch.ones(n, dtype=torch.long),
    )


PROBS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
PAIRS = pairs_with([[0, 1], [3, -1]], [[2, -1], [0, 1]])
EXPECTED = {
    "logit_diff": [(math.log(0.1) + math.log(0.2)) / 2 - math.log(0.3), math.log(0.1) - (math.log(0.4) + math.log(0.3)) / 2],
    "prob_diff": [0.3 - 0.3, 0.1 - 0.7],
    "answer_logit": [(math.log(0.1) + math.log(0.2)) / 2, math.log(0.1)],
    "answer_prob": [0.3, 0.1],
    "answer_logprob": [math.log(0.3), math.log(0.1)],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_values_by_hand(name):
    assert METRICS[name](PROBS.log(), PAIRS).tolist() == pytest.approx(EXPECTED[name], abs=1e-6)


@pytest.mark.parametrize("name", ["prob_diff", "answer_prob", "answer_logprob", "logit_diff"])
def test_adding_a_constant_to_all_logits_changes_nothing(name):
    metric = METRICS[name]
    assert torch.allclose(metric(PROBS.log() + 3, PAIRS), metric(PROBS.log(), PAIRS), atol=1e-6)


def test_kl_by_hand_and_at_its_minimum():
    clean = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.4, 0.3, 0.2, 0.1]]).log()
    expected = [sum(0.25 * math.log(0.25 / p) for p in (0.1, 0.2, 0.3, 0.4)), 0.0]
    assert METRICS["kl"](PROBS.log(), PAIRS, clean).tolist() == pytest.approx(expected, abs=1e-6)
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)).requires_grad_()
    METRICS["kl"](logits, PAIRS, logits.detach()).sum().backward()
    assert not logits.grad.any()  # exactly 0, not a rounding error
    with pytest.raises(CircuitError, match="needs the logits of the whole model"):
        METRICS["kl"](PROBS, PAIRS)


def test_half_precision_logits_are_widened():
    values = METRICS["answer_logprob"](PROBS.log().bfloat16(), PAIRS)
    assert values.dtype == torch.float32


def test_unknown_names_get_near_matches():
    with pytest.raises(CircuitError, match="got 'logitdiff' .did you mean 'logit_diff'"):
        resolve_metric("logitdiff")


def test_a_function_is_a_metric():
    metric = resolve_metric(lambda logits, pairs: logits[:, 0] - logits[:, 1])
    assert metric.name == "custom"
    assert metric(PROBS, PAIRS).tolist() == pytest.approx([-0.1, 0.1])
    assert resolve_metric(metric) is metric


def test_wrong_shapes_nan_and_missing_answers_are_named():
    with pytest.raises(CircuitError, match=r"one value per pair, shape \(2,\), got \(\)"):
        resolve_metric(lambda logits, pairs: logits.sum())(PROBS, PAIRS)
    with pytest.raises(CircuitError, match="got float"):
        resolve_metric(lambda logits, pairs: 1.0)(PROBS, PAIRS)
    with pytest.raises(CircuitError, match="is nan for pair 1"):
        METRICS["answer_logit"](torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, torch.nan]]), PAIRS)
    with pytest.raises(CircuitError, match="needs wrong answers, but pair 1"):
        METRICS["logit_diff"](PROBS, pairs_with([[0], [1]], [[2], [-1]]))
    assert METRICS["answer_prob"](PROBS.log(), pairs_with([[0], [1]], [[2], [-1]])).tolist() == pytest.approx([0.1, 0.3])


def test_random_pairs_have_answers_for_every_metric():
    pairs = random_pairs(3)
    logits = torch.randn(3, 17, generator=torch.Generator().manual_seed(1))
    for name, metric in METRICS.items():
        assert metric(logits, pairs, logits).shape == (3,), name
