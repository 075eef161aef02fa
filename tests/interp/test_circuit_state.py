"""Nothing is left behind: hooks, gradient flags, gradients, grad mode, random state, weights; also after an exception."""

from __future__ import annotations

import contextlib

import pytest
import torch
from circuit_helpers import random_pairs, tiny_model

from interp.circuits import Circuit, Graph, evaluate, faithfulness_curve, select, trace_circuit


def snapshot(model):
    return {
        "flags": [parameter.requires_grad for parameter in model.parameters()],
        "grads": [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()],
        "weights": [parameter.detach().clone() for parameter in model.parameters()],
        "hooks": {name: (list(p.forward_hooks), list(p.backward_hooks)) for name, p in model._hook_points.items()},
        "random": torch.get_rng_state(),
        "mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), model.training),
    }


def assert_same(before, after):
    for name in ("flags", "hooks", "mode"):
        assert before[name] == after[name], name
    assert torch.equal(before["random"], after["random"])
    for name in ("grads", "weights"):
        assert all((a is None and b is None) or torch.equal(a, b) for a, b in zip(before[name], after[name], strict=True)), name


def broken(logits, pairs):
    raise RuntimeError("a metric that fails")


def marked_model():
    """A model in an unusual state: some parameters frozen, a gradient kept, a hook attached."""
    model = tiny_model("gpt2")
    model.blocks[0].attn.q.weight.requires_grad_(False)
    model.W_E.grad = torch.ones_like(model.W_E)
    model.add_hook("blocks.1.hook_resid_post", lambda tensor, hook: None)
    return model


CALLS = {
    "eap": lambda model, pairs: trace_circuit(model, pairs),
    "eap-ig": lambda model, pairs: trace_circuit(model, pairs, method="eap-ig", steps=2),
    "evaluate": lambda model, pairs: evaluate(model, select(trace_circuit(model, pairs), top=9), pairs),
    "curve": lambda model, pairs: faithfulness_curve(model, trace_circuit(model, pairs), pairs, [4]),
    "fails in eap": lambda model, pairs: trace_circuit(model, pairs, metric=broken),
    "fails in eap-ig": lambda model, pairs: trace_circuit(model, pairs, method="eap-ig", metric=broken),
    "fails in exact": lambda model, pairs: trace_circuit(model, pairs, method="exact", metric=broken),
    "fails in evaluate": lambda model, pairs: evaluate(model, Circuit.empty(Graph.of(model)), pairs, metric=broken),
}
MODES = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS)
def test_state_is_as_before(call, mode):
    model, pairs = marked_model(), random_pairs(2)
    expected = pytest.raises(RuntimeError, match="a metric that fails") if "fails" in call else contextlib.nullcontext()
    with MODES[mode]():
        before = snapshot(model)
        with expected:
            CALLS[call](model, pairs)
        assert_same(before, snapshot(model))


def test_exact_leaves_the_model_as_it_was():
    model, pairs = tiny_model("llama_gqa"), random_pairs(2)
    before = snapshot(model)
    trace_circuit(model, pairs, method="exact")
    assert_same(before, snapshot(model))


def test_hooks_of_the_caller_take_part():
    """A head silenced by the caller has no edges left, in its gradient and in its difference."""
    model, pairs = tiny_model("gpt2"), random_pairs(3)

    def silence(tensor, hook):
        tensor[:, :, 2] = 0

    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_z", silence)]):
        scores = trace_circuit(model, pairs)
    assert not scores.values[scores.graph.writer("a0.h2")].any()
    assert scores.values[scores.graph.writer("a0.h1")].any()


def test_scores_are_the_same_twice_and_need_no_gradients():
    model, pairs = tiny_model("gpt2"), random_pairs(3)
    first = trace_circuit(model, pairs)
    assert torch.equal(first.values, trace_circuit(model, pairs).values)
    assert not first.values.requires_grad and not first.values.is_inference()
