"""Circuits on every variant: terms that sum to the stream, gradients that miss no way of reading it, patches that agree."""

from __future__ import annotations

import functools

import pytest
import torch
from circuit_helpers import close

from interp.circuits import Circuit, CircuitError, Graph, evaluate, trace_circuit
from interp.circuits.access import ModelView
from interp.circuits.contributions import walk_difference
from interp.circuits.metrics import METRICS
from interp.circuits.runs import gradient_run, last_logits, plain_run
from interp.prompts import PromptPairs
from models.build import make_model
from tests.models.variants import VARIANTS, tiny_config, tiny_model, tiny_tokens

REFUSED = {name for name, fields in VARIANTS.items() if fields.get("d_layer_embed")}
TRACED = [name for name in VARIANTS if name not in REFUSED]
EVERY = pytest.mark.parametrize("variant", TRACED)


@functools.cache
def model_of(variant: str):
    """In float64, and with logits: a model that returns states gets an unembedding."""
    return tiny_model(variant, dtype=torch.float64, **({"head": "lm"} if VARIANTS[variant].get("head") == "none" else {}))


def some_pairs(model, n: int = 2) -> PromptPairs:
    clean = tiny_tokens(n, 9, d_vocab=min(50, model.cfg.d_vocab))
    corrupt = clean.clone()
    changed = [1, 3, 6, 8]  # far, near and at the last token, so in any window or chunk of it
    corrupt[:, changed] = (clean[:, changed] + 3) % min(50, model.cfg.d_vocab)
    answers = torch.full((n, 1), 2)
    return PromptPairs(clean, corrupt, answers, answers + 1, torch.ones_like(clean, dtype=torch.bool), torch.full((n,), 8))


@functools.cache
def view_and_runs(variant: str):
    view, pairs = ModelView.of(model_of(variant)), some_pairs(model_of(variant))
    return view, pairs, plain_run(view, pairs.clean, pairs), plain_run(view, pairs.corrupt, pairs)


@EVERY
def test_differences_of_terms_sum_to_that_of_the_stream(variant):
    view, pairs, clean, corrupt = view_and_runs(variant)
    streams = {layer: corrupt.streams[layer] - clean.streams[layer] for layer in range(view.graph.n_layers)}
    streams[view.graph.n_layers] = corrupt.final - clean.final
    for stage in walk_difference(view, clean.writes, corrupt.writes):
        norms_first = stage.kind == "attn" and view.order(stage.layer).norms_first  # its readers see more than what was before
        if stage.kind != "mlp" and not norms_first:
            assert close(stage.terms.sum(0), streams[stage.layer].flatten(0, 1), 1e-10), (stage.layer, stage.kind)
        elif norms_first:
            name = f"blocks.{stage.layer}.ln1.hook_normalized"
            seen = [view.model.run_with_cache(tokens, names=name)[1][name] for tokens in (pairs.corrupt, pairs.clean)]
            assert close(stage.terms.sum(0), (seen[0] - seen[1]).flatten(0, 1), 1e-10), (stage.layer, stage.kind)


@EVERY
def test_a_writers_edges_sum_to_its_attribution_patching_score(variant):
    """Exact for any model whose readers are all the ways in which the stream is read; so this finds one that was forgotten."""
    view, pairs, clean, corrupt = view_and_runs(variant)
    scores = trace_circuit(view.model, pairs)
    if not scores.record.additive:
        pytest.skip("norms rescale what earlier writers wrote")
    outs = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_attn_out" for layer in range(view.graph.n_layers))]
    outs += [f"blocks.{number}.hook_mlp_out" for number, layer in enumerate(view.graph.layers) if layer.mlp]
    wanted = attribution_patching(view, pairs, outs)
    nodes, graph = scores.node_scores(), view.graph
    found = {outs[0]: nodes[0]}
    for number, layer in enumerate(graph.layers):
        found[f"blocks.{number}.hook_attn_out"] = nodes[graph.heads(number)].sum()
        if layer.mlp:
            found[f"blocks.{number}.hook_mlp_out"] = nodes[graph.mlp(number)]
    size = max(map(abs, wanted.values()))
    assert {name: float(found[name]) for name in outs} == pytest.approx(wanted, abs=1e-9 * size)


def attribution_patching(view, pairs, names):
    """(corrupt - clean) . d metric / d tensor at each hook, the mean over pairs."""
    model, kept = view.model, {}
    leaf = [("blocks.0.hook_resid_pre", lambda tensor, hook: tensor.detach().requires_grad_())]
    with torch.enable_grad(), model.hooks(fwd_hooks=leaf):
        final, kept = model.run_with_cache(pairs.clean, names=names, detach=False, stop_at_layer=model.n_layers)
        values = METRICS["logit_diff"](last_logits(view, final, pairs), pairs)
        gradients = torch.autograd.grad(values.sum(), [kept[name] for name in names])
    corrupt = model.run_with_cache(pairs.corrupt, names=names, stop_at_layer=model.n_layers)[1]
    return {
        name: float(((corrupt[name] - kept[name].detach()) * gradient).sum()) / len(pairs)
        for name, gradient in zip(names, gradients, strict=True)
    }


@EVERY
def test_an_edge_patched_is_the_whole_model_but_for_that_edge(variant):
    """Two ways to one number: patching from the reader's layer on, and running the circuit that lacks the edge."""
    view, pairs, *_ = view_and_runs(variant)
    graph = view.graph
    readers = [graph.readers[graph.inputs(1, kind).start].name for kind in graph.kinds(1, "attn")] + ["logits"]
    names = [f"{writer}->{reader}" for writer in ("input", "a0.h0") for reader in readers]
    scores = trace_circuit(view.model, pairs, method="exact", edges=names, progress=False)
    full = Circuit.full(graph)
    for name in names:
        found = evaluate(view.model, full - Circuit.from_edges(graph, [name]), pairs)
        wanted = found.metric_circuit - found.metric_full
        assert scores[name] == pytest.approx(wanted, abs=1e-8 * max(1.0, abs(found.metric_full))), name


@EVERY
def test_whole_and_empty_circuit_are_clean_and_corrupt_run(variant):
    view, pairs, clean, corrupt = view_and_runs(variant)
    found = evaluate(view.model, Circuit.empty(view.graph), pairs)
    assert found.metric_full == pytest.approx(float(METRICS["logit_diff"](clean.logits, pairs).mean()), abs=1e-9)
    assert found.metric_circuit == pytest.approx(float(METRICS["logit_diff"](corrupt.logits, pairs).mean()), abs=1e-7)
    assert found.faithfulness == pytest.approx(0.0, abs=1e-6)
    assert evaluate(view.model, Circuit.full(view.graph), pairs).faithfulness == pytest.approx(1.0, abs=1e-9)


@EVERY
def test_both_ways_to_the_gradients_of_readers_agree(variant, monkeypatch):
    """Pulled back through W_Q, W_K and W_V, or taken at a copy of the stream per head."""
    view, pairs, *_ = view_and_runs(variant)
    linear = [layer for layer in range(view.graph.n_layers) if view.reads_linearly(layer)]
    if not linear:
        pytest.skip("no layer reads by W_Q, W_K and W_V alone")
    metric, tokens = METRICS["logit_diff"], slice(None)
    fast = gradient_run(view, pairs, metric).gradients
    fast = [fast.at(layer, "attn", tokens) for layer in linear]
    monkeypatch.setattr(ModelView, "reads_linearly", lambda self, layer: False)
    slow = gradient_run(view, pairs, metric).gradients
    for layer, gradient in zip(linear, fast, strict=True):
        assert close(gradient, slow.at(layer, "attn", tokens), 1e-9), layer


@pytest.mark.parametrize("variant", sorted(REFUSED))
def test_layers_with_token_embeddings_of_their_own_are_refused(variant):
    model = tiny_model(variant)
    with pytest.raises(CircuitError, match="layer 0 also adds embeddings of the tokens of its own"):
        trace_circuit(model, some_pairs(model))


@pytest.mark.parametrize("variant", [name for name, fields in VARIANTS.items() if fields.get("head") == "none"])
def test_a_model_without_a_head_has_no_circuit(variant):
    """Its last states are no logits: an index into them would be taken for a token."""
    model = tiny_model(variant, d_vocab=32)
    pairs, circuit = some_pairs(model), Circuit.empty(Graph.of(model))
    for refused in (lambda: trace_circuit(model, pairs), lambda: evaluate(model, circuit, pairs, metric="answer_logit")):
        with pytest.raises(CircuitError, match="circuits end at logits, and this model has no head"):
            refused()


def test_a_block_may_scale_the_whole_stream():
    """Gemma 4's order without its layer embeddings: factors leave scores additive, and circuits run."""
    changes = {"block": "sandwich_scaled", "norm": "rms_norm"}
    model = tiny_model("llama", dtype=torch.float64, **changes)
    pairs, graph = some_pairs(model), Graph.of(model)
    assert all(float((block.scalar.detach() - 1).abs()) > 0.01 for block in model.blocks)
    scores = trace_circuit(model, pairs, method="eap-ig", steps=60)
    assert scores.record.additive
    change = scores.record.metric_corrupt - scores.record.metric_clean
    assert float(scores.node_scores()[0]) == pytest.approx(change, rel=0.02)
    assert evaluate(model, Circuit.empty(graph), pairs).faithfulness == pytest.approx(0.0, abs=1e-6)
    half = Circuit(graph, graph.allowed & (torch.arange(len(graph.readers)) % 2 == 0))
    mean = evaluate(model, half, pairs, ablation="mean")
    assert mean.metric_circuit != pytest.approx(mean.metric_full) and mean.metric_empty != pytest.approx(mean.metric_full)


def test_cross_attention_is_refused():
    encoder = tiny_config("t5_encoder", head="none")
    model = make_model(tiny_config("t5_decoder", encoder=encoder, cross_attention=True))
    with pytest.raises(CircuitError, match="cross-attention"):
        trace_circuit(model, None)
