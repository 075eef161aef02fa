"""What the circuit functions are given is checked before the model runs, and the message says what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from circuit_helpers import SIZES, random_pairs, tiny_model

from interp.circuits import Circuit, CircuitError, EdgeScores, Graph, evaluate, faithfulness_curve, prune, select, trace_circuit

MODEL = tiny_model("gpt2")
GRAPH = Graph.of(MODEL)
PAIRS = random_pairs(5)
PROMPTS = PAIRS.to_lists()
NAMES = ["input->logits"]

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "prompts as dicts": (lambda: trace_circuit(MODEL, PROMPTS), "pairs must be .*PromptPairs, got list; .*from_prompts"),
    "evaluate on dicts": (lambda: evaluate(MODEL, Circuit.empty(GRAPH), PROMPTS), "pairs must be .*PromptPairs, got list"),
    "swapped in trace": (lambda: trace_circuit(PAIRS, MODEL, ungrouped=True), "circuits need a model .* PromptPairs lacks"),
    "edge names": (lambda: evaluate(MODEL, NAMES, PAIRS), "circuit must be .*Circuit, got list; .*Circuit.from_edges"),
    "swapped in evaluate": (lambda: evaluate(MODEL, PAIRS, Circuit.empty(GRAPH)), "circuit must be .*Circuit, got PromptPairs"),
    "swapped in the curve": (lambda: faithfulness_curve(MODEL, PAIRS, PAIRS), "scores must be .*EdgeScores, got PromptPairs"),
    "selecting from a circuit": (lambda: select(Circuit.empty(GRAPH), top=1), "scores must be .*EdgeScores, got Circuit"),
    "pruning names": (lambda: prune(NAMES), "circuit must be .*Circuit, got list"),
    "no pairs": (lambda: trace_circuit(MODEL, PAIRS[:0]), "pairs is empty"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_argument_is_named_with_the_way_to_get_a_right_one(name, unchecked):
    call, words = MISTAKES[name]
    with pytest.raises(CircuitError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def refuse_to_run(*args: object, **kwargs: object) -> None:
    raise AssertionError("the model ran")


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("method", ["eap", "eap-ig", "exact"])
def test_a_pair_without_answers_is_named_before_any_run(batch_size, method, monkeypatch):
    wrong = PAIRS.wrong_answers.clone()
    wrong[3] = -1
    pairs = replace(PAIRS, wrong_answers=wrong)
    monkeypatch.setattr(MODEL, "forward", refuse_to_run)
    monkeypatch.setattr(MODEL, "run_with_cache", refuse_to_run)
    with pytest.raises(CircuitError, match="needs wrong answers, but pair 3 has none"):
        trace_circuit(MODEL, pairs, method=method, batch_size=batch_size)
    with pytest.raises(CircuitError, match="needs wrong answers, but pair 3 has none"):
        evaluate(MODEL, Circuit.empty(GRAPH), pairs, batch_size=batch_size)


def test_answers_of_another_model_are_named():
    smaller = tiny_model("gpt2", d_vocab_out=9)
    answers = PAIRS.answers.clamp(max=8)
    answers[2, 0] = 12
    pairs = replace(PAIRS, answers=answers, wrong_answers=PAIRS.wrong_answers.clamp(max=8))
    with pytest.raises(CircuitError, match=r"pair 2, answers has token id 12, outside the model's logits 0..8"):
        trace_circuit(smaller, pairs)
    assert SIZES["d_vocab"] > 12


def test_prompts_that_differ_at_padding_only_are_the_same():
    pairs = random_pairs(lengths=[4, 6])
    padding = ~pairs.attention_mask
    same = replace(pairs, corrupt=pairs.clean.masked_fill(padding, 3), clean=pairs.clean.masked_fill(padding, 4))
    with pytest.raises(CircuitError, match="clean and corrupt prompts are the same"):
        trace_circuit(MODEL, same, method="exact")


def test_selection_takes_numbers_only(unchecked):
    scores = EdgeScores(GRAPH, GRAPH.allowed.float())
    assert select(scores, top=np.int64(5)).n_edges == 5 == select(scores, greedy=np.int64(5)).n_edges
    assert select(scores, threshold=np.float32(0.5)).n_edges == GRAPH.n_edges
    for arguments in ({"top": True}, {"greedy": True}, {"top": 2.0}):
        with pytest.raises(CircuitError, match="must be a whole number of edges"):
            select(scores, **arguments)
    for threshold in (float("nan"), "0.5", True):
        with pytest.raises(CircuitError, match="threshold must be a number"):
            select(scores, threshold=threshold)


def test_steps_may_be_a_numpy_number(unchecked):
    scores = trace_circuit(MODEL, PAIRS, method="eap-ig", steps=np.int64(2))
    assert type(scores.record.steps) is int
    assert torch.equal(scores.values, trace_circuit(MODEL, PAIRS, method="eap-ig", steps=2).values)


@pytest.mark.parametrize(
    ("variant", "additive"), [("bert", False), ("post_attn_only", False), ("gpt2", True), ("gemma_mqa", True)]
)
def test_the_record_says_whether_scores_add_up(variant, additive):
    """Where they do, edges out of the input integrate to the change of the metric; in post-norm blocks they stay away from it."""
    scores = trace_circuit(tiny_model(variant), PAIRS, method="eap-ig", steps=60)
    assert scores.record.additive is additive
    change = scores.record.metric_corrupt - scores.record.metric_clean
    assert (abs(float(scores.node_scores()[0]) - change) < 2e-3) is additive
    plain = trace_circuit(tiny_model("post_attn_only", norm="none"), PAIRS)
    assert plain.record.additive
