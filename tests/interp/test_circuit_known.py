"""Circuits known because they were built: the induction circuit, traced from prompts."""

from __future__ import annotations

import pytest
import torch

from interp.circuits import Circuit, evaluate, prune, select, trace_circuit
from interp.prompts import PromptPairs
from models.zoo.handbuilt import induction_model, pointer_model

D_VOCAB, LENGTH = 24, 9


def induction_pairs(corrupted: int, seed: int = 0, n: int = 6) -> PromptPairs:
    """BOS, distinct tokens, and one of them again at the end; the answer is what followed it.

    corrupted: 0 replaces the first occurrence of the repeated token, 1 the token after it (the answer).
    """
    generator = torch.Generator().manual_seed(seed)
    prompts = []
    for _ in range(n):
        order = (1 + torch.randperm(D_VOCAB - 1, generator=generator)).tolist()
        place = int(torch.randint(0, LENGTH - 3, (1,), generator=generator))
        clean = [0, *order[:LENGTH], order[place]]
        corrupt = list(clean)
        corrupt[1 + place + corrupted] = order[LENGTH]
        wrong = order[LENGTH] if corrupted else order[LENGTH + 1]
        prompts.append({"clean": clean, "corrupt": corrupt, "answers": [order[place + 1]], "wrong_answers": [wrong]})
    return PromptPairs.from_prompts(prompts, induction_model(D_VOCAB, 16))


def effective(scores, least=1e-6):
    return {edge for edge, score in scores.items() if abs(score) > least}


K_PATH = {"input->a0.h0<v>", "a0.h0->a1.h0<k>", "a1.h0->logits"}
V_PATH = {"input->a1.h0<v>", "a1.h0->logits"}


@pytest.mark.parametrize("extra_heads", [0, 2])
def test_exact_patching_finds_the_induction_circuit_and_nothing_else(extra_heads):
    model = induction_model(D_VOCAB, 16, extra_heads=extra_heads)
    keys = trace_circuit(model, induction_pairs(0), method="exact")
    assert effective(keys) == K_PATH
    assert keys["a0.h0->a1.h0<q>"] == keys["a0.h0->a1.h0<v>"] == 0
    assert effective(trace_circuit(model, induction_pairs(1), method="exact")) == V_PATH
    found = [effective(trace_circuit(model, induction_pairs(0, seed), method="exact")) for seed in range(3)]
    assert all(edges == K_PATH for edges in found)


def test_the_key_edge_carries_all_of_the_previous_token_head():
    """Patching the one edge does what corrupting the head's whole output does."""
    model, pairs = induction_model(D_VOCAB, 16), induction_pairs(0)
    scores = trace_circuit(model, pairs, method="exact")
    name = "blocks.0.attn.hook_z"
    corrupt = model.run_with_cache(pairs.corrupt, names=name)[1][name]
    noised = model.run_with_hooks(pairs.clean, fwd_hooks=[(name, lambda tensor, hook: corrupt)])
    rows = torch.arange(len(pairs))

    def difference(logits):
        last = logits[rows, pairs.last]
        return last[rows, pairs.answers[:, 0]] - last[rows, pairs.wrong_answers[:, 0]]

    wanted = (difference(noised) - difference(model(pairs.clean))).mean()
    assert scores["a0.h0->a1.h0<k>"] == pytest.approx(float(wanted.detach()), rel=1e-6)
    assert scores["a0.h0->a1.h0<k>"] < -10


@pytest.mark.parametrize("method", ["eap", "eap-ig"])
def test_gradients_rank_the_composition_first_where_attention_is_not_saturated(method):
    scores = trace_circuit(induction_model(D_VOCAB, 16, beta=5.0, extra_heads=1), induction_pairs(0), method=method)
    between_heads = {edge: abs(score) for edge, score in scores.items() if edge.startswith("a0.") and "->a1." in edge}
    assert max(between_heads, key=between_heads.get) == "a0.h0->a1.h0<k>"
    assert sum(score > 0 for score in between_heads.values()) == 1


def test_a_pointer_model_composes_by_query():
    model = pointer_model(D_VOCAB, 16)
    between = {e for e in effective(trace_circuit(model, induction_pairs(0), method="exact")) if e.startswith("a0.h0->a1")}
    assert between == {"a0.h0->a1.h0<q>"}


def test_the_circuit_alone_is_faithful():
    model, pairs = induction_model(D_VOCAB, 16, extra_heads=2), induction_pairs(0)
    scores = trace_circuit(model, pairs, method="exact")
    circuit = select(scores, greedy=3)
    assert set(circuit.edges) == K_PATH and prune(circuit).edges == circuit.edges
    assert evaluate(model, circuit, pairs).faithfulness == pytest.approx(1, abs=1e-5)
    without = circuit - Circuit.from_edges(circuit.graph, ["a0.h0->a1.h0<k>"])
    assert evaluate(model, without, pairs).faithfulness == pytest.approx(0, abs=1e-5)
