"""EAP and EAP-IG: identities that hold for every model, invariances, and the answer keys of an independent program."""

from __future__ import annotations

import json

import pytest
import torch
from circuit_helpers import VARIANTS, close, random_pairs, tiny_model

import interp.circuits.attribution as attribution
from interp.circuits import CircuitError, trace_circuit
from interp.circuits.attribution import path_points
from interp.circuits.metrics import METRICS
from interp.prompts import PromptPairs
from models import HookedTransformer

CONTRIBUTIONS = {"head": "blocks.{}.attn.hook_result", "mlp": "blocks.{}.hook_mlp_out"}


def node_attribution(model, pairs, writer):
    """Attribution patching of a node by autograd at its own output, (corrupt - clean) . d metric / d output, mean over pairs."""
    name = "blocks.0.hook_resid_pre" if writer.kind == "input" else CONTRIBUTIONS[writer.kind].format(writer.layer)
    corrupt = model.run_with_cache(pairs.corrupt, names=name)[1][name]
    logits, cache = model.run_with_cache(pairs.clean, names=name, detach=False)
    total = METRICS["logit_diff"](logits[torch.arange(len(pairs)), pairs.last], pairs).sum()
    (gradient,) = torch.autograd.grad(total, cache[name])
    product = ((corrupt - cache[name]) * gradient).detach()
    return float((product[:, :, writer.index] if writer.kind == "head" else product).sum()) / len(pairs)


@pytest.mark.parametrize("variant", ["gpt2", "llama_gqa", "neox", "attn_only", "no_norm"])
def test_edges_of_a_writer_sum_to_its_attribution_score(variant):
    model, pairs = tiny_model(variant), random_pairs(3)
    scores = trace_circuit(model, pairs)
    for writer, score in zip(scores.graph.writers, scores.node_scores(), strict=True):
        assert float(score) == pytest.approx(node_attribution(model, pairs, writer), abs=1e-12), writer.name


@pytest.mark.parametrize("variant", ["gemma_mqa", "sandwich_bias"])
def test_edges_of_all_heads_sum_to_the_attribution_of_a_sandwich_block(variant):
    model, pairs = tiny_model(variant), random_pairs(3)
    scores = trace_circuit(model, pairs)
    name = "blocks.1.hook_attn_out"
    corrupt = model.run_with_cache(pairs.corrupt, names=name)[1][name]
    logits, cache = model.run_with_cache(pairs.clean, names=name, detach=False)
    total = METRICS["logit_diff"](logits[torch.arange(3), pairs.last], pairs).sum()
    (gradient,) = torch.autograd.grad(total, cache[name])
    wanted = float(((corrupt - cache[name]) * gradient).sum().detach()) / 3
    assert float(scores.node_scores()[scores.graph.heads(1)].sum()) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_do_not_depend_on_batching_or_padding(variant):
    model = tiny_model(variant)
    lengths = [5, 7, 3, 6, 7]
    whole = trace_circuit(model, random_pairs(lengths=lengths)).values
    for size in (1, 2, 5, 9):
        batched = trace_circuit(model, random_pairs(lengths=lengths), batch_size=size).values
        assert close(batched, whole, 1e-10), size
    left = trace_circuit(model, random_pairs(lengths=lengths, side="left"), batch_size=2).values
    assert close(left, whole, 1e-10)
    assert close(trace_circuit(model, extra_padding(random_pairs(lengths=lengths))).values, whole, 1e-10)
    alone = [trace_circuit(model, pair).values for pair in random_pairs(lengths=lengths).batches(1)]
    assert close(torch.stack(alone).mean(0), whole, 1e-10)


def extra_padding(pairs: PromptPairs) -> PromptPairs:
    def wider(x, value):
        return torch.nn.functional.pad(x, (1, 3), value=value)

    mask = wider(pairs.attention_mask, False)
    return PromptPairs(wider(pairs.clean, 3), wider(pairs.corrupt, 5), pairs.answers, pairs.wrong_answers, mask, pairs.last + 1)


def test_scores_do_not_depend_on_how_many_tokens_are_contracted_at_once(monkeypatch):
    for variant in ("gpt2", "bert"):
        model, pairs = tiny_model(variant), random_pairs(lengths=[5, 7, 3])
        whole = trace_circuit(model, pairs).values
        monkeypatch.setattr(attribution, "BUFFER_BYTES", 4 * 11 * 24 * 8)
        assert close(trace_circuit(model, pairs).values, whole, 1e-12)
        monkeypatch.undo()


@pytest.mark.parametrize("variant", ["gpt2", "gemma_mqa", "neox"])
def test_integrated_gradients_are_complete(variant):
    """Edges out of the input sum to the change of the metric; the midpoint rule's error falls with the square of the steps."""
    model, pairs = tiny_model(variant), random_pairs(4)
    error = {}
    for rule, steps in (("midpoint", 15), ("midpoint", 45), ("left", 45), ("right", 45)):
        scores = trace_circuit(model, pairs, method="eap-ig", steps=steps, rule=rule)
        change = scores.record.metric_corrupt - scores.record.metric_clean
        error[rule, steps] = abs(float(scores.node_scores()[0]) - change)
    assert error["midpoint", 45] < 1e-3
    assert error["midpoint", 45] < error["midpoint", 15] / 7
    assert error["midpoint", 45] < min(error["left", 45], error["right", 45])


def test_path_points():
    assert path_points(4, "midpoint") == [0.125, 0.375, 0.625, 0.875]
    assert path_points(2, "left") == [0, 0.5] and path_points(2, "right") == [0.5, 1]


def test_one_right_step_is_the_clean_gradient():
    model, pairs = tiny_model("llama_gqa"), random_pairs(3)
    plain = trace_circuit(model, pairs).values
    assert close(trace_circuit(model, pairs, method="eap-ig", steps=1, rule="right").values, plain, 1e-12)


@pytest.mark.parametrize("variant", ["llama_gqa", "gemma_mqa"])
@pytest.mark.parametrize("method", ["eap", "eap-ig"])
def test_grouped_key_edges_are_sums_over_the_group(variant, method):
    model, pairs = tiny_model(variant), random_pairs(3)
    native = trace_circuit(model, pairs, method=method)
    split = trace_circuit(model, pairs, method=method, ungrouped=True)
    assert native.graph.n_kv_heads < split.graph.n_kv_heads == 4 and split.record.ungrouped
    assert close(split.grouped(native.graph.n_kv_heads).values, native.values, 1e-12)
    q = slice(0, 4)
    assert close(split.values[:, q], native.values[:, q], 1e-12)


def test_a_model_whose_heads_repeat_keys_has_the_same_query_edges():
    grouped, pairs = tiny_model("llama_gqa"), random_pairs(3)
    repeated = tiny_model("llama_gqa", n_kv_heads=4)
    state = grouped.state_dict()
    for name in state:
        if ".attn.k." in name or ".attn.v." in name:
            state[name] = state[name].unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten(0, 1)
    repeated.load_state_dict(state)
    native, mha = trace_circuit(grouped, pairs), trace_circuit(repeated, pairs)
    assert close(mha.grouped(2).values, native.values, 1e-12)


@pytest.mark.parametrize("method", ["eap", "eap-ig", "exact"])
def test_prompts_that_never_differ_are_refused(method):
    model, pairs = tiny_model("no_norm"), random_pairs(3)
    same = PromptPairs(pairs.clean, pairs.clean, pairs.answers, pairs.wrong_answers, pairs.attention_mask, pairs.last)
    with pytest.raises(CircuitError, match="clean and corrupt prompts are the same"):
        trace_circuit(model, same, method=method)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_metric_without_gradient_is_refused(dtype):
    model, pairs = tiny_model("gpt2", dtype=dtype), random_pairs(3)
    with pytest.raises(CircuitError, match="'kl' has no gradient at these prompts.*use method 'eap-ig' or 'exact'"):
        trace_circuit(model, pairs, metric="kl")
    clean = model(pairs.clean)[:, -1].detach()
    with pytest.raises(CircuitError, match="every edge scores 0"):
        trace_circuit(model, pairs, metric=lambda logits, _: (logits - clean).pow(2).sum(-1))
    with pytest.raises(CircuitError, match="every edge scores 0"):
        trace_circuit(model, pairs, metric=lambda logits, _: torch.ones(len(logits)))
    assert trace_circuit(model, pairs, metric="kl", method="eap-ig").values.any()


@pytest.mark.parametrize("metric", sorted(set(METRICS) - {"kl"}))
def test_every_metric_can_be_traced(metric):
    scores = trace_circuit(tiny_model("gpt2"), random_pairs(3), metric=metric)
    assert scores.values.any() and scores.record.metric == metric and scores.record.higher_is_better


def test_bfloat16_is_scored_in_float32():
    pairs = random_pairs(3)
    exact = trace_circuit(tiny_model("llama_gqa", dtype=torch.float32), pairs)
    rounded = trace_circuit(tiny_model("llama_gqa", dtype=torch.bfloat16), pairs)
    assert rounded.values.dtype == torch.float32 and rounded.record.dtype == "bfloat16"
    assert close(rounded.values, exact.values, 0.1)


def test_the_record_says_how_scores_were_made():
    model, pairs = tiny_model("gpt2"), random_pairs(3)
    record = trace_circuit(model, pairs, method="eap-ig", steps=3, rule="left").record
    assert (record.method, record.metric, record.steps, record.rule) == ("eap-ig", "logit_diff", 3, "left")
    assert (record.n_pairs, record.model, record.d_model, record.difference) == (3, "gpt2", 24, "corrupt-clean")
    assert record.prompts["sha256"] == pairs.record()["sha256"] and record.seed is None
    rows = torch.arange(3)
    for tokens, value in ((pairs.clean, record.metric_clean), (pairs.corrupt, record.metric_corrupt)):
        assert value == pytest.approx(METRICS["logit_diff"](model(tokens)[rows, pairs.last], pairs).mean().item())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "eapig"}, "method must be one of eap, eap-ig, exact, got 'eapig' .did you mean"),
        ({"method": "EAP"}, "got 'EAP' .did you mean 'eap'"),
        ({"metric": "Logit_Diff"}, "did you mean 'logit_diff'"),
        ({"metric": "logit_dif"}, "did you mean 'logit_diff'"),
        ({"method": "eap-ig", "steps": 0}, "steps must be a whole number of at least 1"),
        ({"method": "eap-ig", "rule": "middle"}, "rule must be one of midpoint, left, right"),
        ({"readers": ["logits"]}, "choose what method 'exact' patches"),
    ],
)
def test_what_trace_circuit_refuses(arguments, words):
    with pytest.raises(CircuitError, match=words):
        trace_circuit(tiny_model("gpt2"), random_pairs(2), **arguments)


def test_a_model_without_readable_weights_is_refused():
    with pytest.raises(CircuitError, match="circuits need a model with blocks"):
        trace_circuit(torch.nn.Linear(2, 2), random_pairs(2))


ANSWERS = [("EAP", {"method": "eap"}), ("EAP-IG-inputs", {"method": "eap-ig", "rule": "left"}), ("exact", {"method": "exact"})]


@pytest.mark.parametrize("name", ["gpt_like", "llama_like_gqa"])
@pytest.mark.parametrize(("key", "arguments"), ANSWERS, ids=[key for key, _ in ANSWERS])
def test_scores_of_an_independent_program(shared_data, name, key, arguments):
    from safetensors.torch import load_file

    file = shared_data / "edge_scores" / name
    answer, tensors = json.loads(file.with_suffix(".json").read_text()), load_file(file.with_suffix(".safetensors"))
    weights = {key.removeprefix("W."): value for key, value in tensors.items() if key.startswith("W.")}
    model = HookedTransformer.from_transformer_lens(weights, answer["config"])
    clean, labels = tensors["clean"], tensors["labels"]
    mask, last = torch.ones_like(clean, dtype=torch.bool), torch.full((len(clean),), clean.shape[1] - 1)
    pairs = PromptPairs(clean, tensors["corrupt"], labels[:, 1:], labels[:, :1], mask, last)
    scores = trace_circuit(model, pairs, ungrouped=True, **arguments)
    assert sorted(answer["edges"]) == sorted(scores.graph.edge_names())
    wanted = torch.tensor(answer["scores"][key])
    if key != "exact":
        # There the gradient is of the batch mean, and the sum is divided by the batch size once more.
        wanted = wanted * len(pairs)
    assert close(torch.tensor([scores[edge] for edge in answer["edges"]]), wanted, 1e-4)
