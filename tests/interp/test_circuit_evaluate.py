"""Faithfulness: the two ends, hand-computed ablations, and an independent run of a circuit."""

from __future__ import annotations

import pytest
import torch
from circuit_helpers import VARIANTS, close, random_pairs, tiny_model

from interp.circuits import Circuit, CircuitError, EdgeScores, Evaluation, Graph, evaluate, prune, select, trace_circuit
from interp.circuits.access import ModelView
from interp.circuits.metrics import METRICS
from interp.circuits.patched import Fixed, Patching, circuit_logits, mean_terms
from interp.circuits.runs import plain_run
from interp.prompts import PromptPairs


def last_logits(model, tokens, pairs):
    logits = model(tokens, attention_mask=pairs.attention_mask if pairs.padded else None)
    return logits[torch.arange(len(pairs)), pairs.last].detach()


def patching(model, pairs):
    view = ModelView.of(model)
    return view, Patching(plain_run(view, pairs.corrupt, pairs).writes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_edges_are_the_model_and_no_edge_is_the_corrupt_run(variant):
    model = tiny_model(variant)
    for pairs in (random_pairs(3), random_pairs(lengths=[5, 7, 4], side="left"), random_pairs(lengths=[5, 7, 4])):
        view, ablation = patching(model, pairs)
        full = circuit_logits(view, Circuit.full(view.graph), pairs, ablation)
        empty = circuit_logits(view, Circuit.empty(view.graph), pairs, ablation)
        assert close(full, last_logits(model, pairs.clean, pairs), 1e-12)
        assert close(empty, last_logits(model, pairs.corrupt, pairs), 1e-10)


@pytest.mark.parametrize("variant", ["gpt2", "gemma_mqa", "bert"])
def test_float32_ends_agree_to_a_millionth(variant):
    model, pairs = tiny_model(variant, dtype=torch.float32), random_pairs(3)
    view, ablation = patching(model, pairs)
    assert close(circuit_logits(view, Circuit.full(view.graph), pairs, ablation), last_logits(model, pairs.clean, pairs), 1e-6)
    empty = circuit_logits(view, Circuit.empty(view.graph), pairs, ablation)
    assert close(empty, last_logits(model, pairs.corrupt, pairs), 1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_faithfulness_is_one_for_all_edges_and_zero_for_none(variant):
    model, pairs = tiny_model(variant), random_pairs(3)
    graph = Graph.of(model)
    for ablation in ("patching", "zero", "mean"):
        whole, nothing = (evaluate(model, c, pairs, ablation=ablation) for c in (Circuit.full(graph), Circuit.empty(graph)))
        assert whole.faithfulness == pytest.approx(1, abs=1e-9) and nothing.faithfulness == pytest.approx(0, abs=1e-9)


def by_hand(model, circuit, pairs, ablated):
    """A circuit of a pre-norm or parallel model, writer by writer from its weights: the slow definition."""
    graph, cfg = circuit.graph, model.cfg
    mine: list[torch.Tensor] = []
    context = model.run_with_cache(pairs.clean, names="blocks.0.hook_resid_pre")[1]["blocks.0.hook_resid_pre"].detach()
    mine.append(context)

    def read(name, bias):
        reader = graph.reader(name)
        total = bias.clone()
        for writer in range(len(mine)):
            if graph.allowed[writer, reader]:
                total = total + (mine[writer] if circuit.mask[writer, reader] else ablated[writer])
        return total

    bias = torch.zeros_like(context)
    letter, size = ("g", cfg.group_size) if graph.grouped else ("h", 1)
    for layer, block in enumerate(model.blocks):
        inputs = {}
        for kind, n in (("q", cfg.n_heads), ("k", cfg.n_kv_heads), ("v", cfg.n_kv_heads)):
            names = [f"a{layer}.{'h' if kind == 'q' else letter}{i}<{kind}>" for i in range(n)]
            inputs[kind] = torch.stack([read(name, bias) for name in names], 2)
        heads = attend(model, layer, inputs)
        mlp_bias = bias + (0 if block.attn.b_O is None or cfg.block == "parallel" else block.attn.b_O)
        start = len(mine)
        mine += [heads[:, :, head] for head in range(cfg.n_heads)]
        if not cfg.attn_only:
            mine.append(block.mlp(block.ln2(read(f"m{layer}", mlp_bias))).detach())
        assert len(mine) - start == cfg.n_heads + (not cfg.attn_only) and size
        bias = bias + (0 if block.attn.b_O is None else block.attn.b_O)
    return last_of(model.unembed_resid(read("logits", bias)), pairs)


def attend(model, layer, inputs):
    """What each head adds, from one residual stream per reader."""
    seen = {}

    def put(kind):
        return lambda tensor, hook: inputs[kind]

    def keep(tensor, hook):
        seen["result"] = tensor.detach().clone()

    hooks = [(f"blocks.{layer}.hook_{kind}_input", put(kind)) for kind in "qkv"]
    hooks.append((f"blocks.{layer}.attn.hook_result", keep))
    shape = inputs["q"][:, :, 0]
    with model.hooks(fwd_hooks=hooks):
        model(torch.zeros_like(shape), start_at_layer=layer, stop_at_layer=layer + 1)
    return seen["result"]


def last_of(logits, pairs):
    return logits[torch.arange(len(pairs)), pairs.last].detach()


def outputs_of(model, tokens):
    """Every writer's output on a run, [writers, batch, pos, d_model], in graph order."""
    names = ["blocks.0.hook_resid_pre"]
    _, cache = model.run_with_cache(tokens, names=["blocks.0.hook_resid_pre", "blocks.*.attn.hook_result"])
    outs = [cache[names[0]]]
    mlps = {} if model.cfg.attn_only else model.run_with_cache(tokens, names="blocks.*.hook_mlp_out")[1]
    for layer in range(model.cfg.n_layers):
        outs += list(cache[f"blocks.{layer}.attn.hook_result"].unbind(2))
        outs += [mlps[f"blocks.{layer}.hook_mlp_out"]] if mlps else []
    return torch.stack(outs).detach()


@pytest.mark.parametrize("variant", ["gpt2", "llama_gqa", "neox", "attn_only", "no_norm"])
@pytest.mark.parametrize("ablation", ["patching", "zero", "mean"])
def test_random_circuits_equal_the_slow_definition(variant, ablation):
    model, pairs = tiny_model(variant), random_pairs(3)
    graph = Graph.of(model)
    keep = torch.rand(graph.allowed.shape, generator=torch.Generator().manual_seed(1)) < 0.6
    circuit = Circuit(graph, keep & graph.allowed)
    outs = outputs_of(model, pairs.corrupt)
    ablated = {"patching": outs, "zero": 0 * outs, "mean": outs.mean((1, 2), keepdim=True).expand_as(outs)}[ablation]
    wanted = METRICS["logit_diff"](by_hand(model, circuit, pairs, ablated), pairs)
    result = evaluate(model, circuit, pairs, ablation=ablation, batch_size=2)
    assert close(result.per_pair["circuit"], wanted, 1e-10)
    assert not close(result.per_pair["circuit"], result.per_pair["full"], 1e-3)


def test_faithfulness_is_the_ratio_of_means_and_is_not_clipped():
    model, pairs = tiny_model("gpt2"), random_pairs(5)
    scores = trace_circuit(model, pairs, method="exact")
    harmful = EdgeScores(scores.graph, -scores.values, scores.record)  # their clean values make the answer worse
    found = []
    for n in (1, 2, 3, 5, 8, 12, 20, 40):
        result = evaluate(model, select(harmful, top=n, signed=True), pairs)
        rows = {name: values.mean().item() for name, values in result.per_pair.items()}
        ratio = (rows["circuit"] - rows["empty"]) / (rows["full"] - rows["empty"])
        assert result.faithfulness == pytest.approx(ratio) and result.metric_circuit == pytest.approx(rows["circuit"])
        found.append(result.faithfulness)
    assert max(found) > 1 or min(found) < 0


def test_batches_and_metrics_do_not_change_faithfulness():
    model, pairs = tiny_model("llama_gqa"), random_pairs(lengths=[5, 7, 3, 6])
    circuit = select(trace_circuit(model, pairs), top=20)
    for ablation in ("patching", "zero", "mean"):
        whole = evaluate(model, circuit, pairs, ablation=ablation)
        assert evaluate(model, circuit, pairs, ablation=ablation, batch_size=3).faithfulness == pytest.approx(whole.faithfulness)
    kl = evaluate(model, circuit, pairs, metric="kl")
    assert kl.metric_full == pytest.approx(0, abs=1e-12) and kl.metric_empty > 0
    assert kl.faithfulness == pytest.approx(1 - kl.metric_circuit / kl.metric_empty)


def test_equal_ends_are_refused():
    model, pairs = tiny_model("gpt2"), random_pairs(3)
    same = PromptPairs(pairs.clean, pairs.clean, pairs.answers, pairs.wrong_answers, pairs.attention_mask, pairs.last)
    with pytest.raises(CircuitError, match="faithfulness is undefined: mean logit_diff is .* both for the whole model"):
        evaluate(model, Circuit.full(Graph.of(model)), same)


def test_mean_terms_count_real_tokens_only():
    """Two prompts [1, 2] and [3] with one pad: means over three tokens, by hand from the embeddings and the heads' outputs."""
    model = tiny_model("attn_only", norm="none", out_bias=False)
    tokens, mask = torch.tensor([[1, 2], [3, 0]]), torch.tensor([[True, True], [True, False]])
    answers = torch.tensor([[4], [5]])
    pairs = PromptPairs(tokens, tokens, answers, answers + 1, mask, torch.tensor([1, 0]))
    view = ModelView.of(model)
    mean = mean_terms(view, [(tokens, pairs)], per_position=False)[view.graph.n_layers, "logits"][:, 0]
    embedded = [model.W_E[1] + model.W_pos[0], model.W_E[2] + model.W_pos[1], model.W_E[3] + model.W_pos[0]]
    assert close(mean[0], torch.stack(embedded).mean(0), 1e-12)
    results = [outputs_of(model, torch.tensor([prompt]))[:, 0] for prompt in ([1, 2], [3])]
    assert close(mean, torch.cat(results, 1).mean(1), 1e-12)


def test_mean_per_position_and_held_out_calibration():
    model, pairs, other = tiny_model("gpt2"), random_pairs(3), random_pairs(4, seed=5)
    view = ModelView.of(model)
    outs = outputs_of(model, pairs.corrupt)
    by_position = mean_terms(view, [(batch.corrupt, batch) for batch in pairs.batches(2)], per_position=True)
    assert close(by_position[2, "logits"], outs.mean(1), 1e-12)
    circuit = select(trace_circuit(model, pairs), top=30)
    held_out = evaluate(model, circuit, pairs, ablation="mean", calibration=other)
    from_tokens = evaluate(model, circuit, pairs, ablation="mean", calibration=other.corrupt)
    assert held_out.faithfulness == pytest.approx(from_tokens.faithfulness)
    assert held_out.faithfulness != evaluate(model, circuit, pairs, ablation="mean").faithfulness
    per_position = evaluate(model, circuit, pairs, ablation="mean", mean_per_position=True).per_pair["circuit"]
    ablated = outs.mean(1, keepdim=True).expand_as(outs)
    assert close(per_position, METRICS["logit_diff"](by_hand(model, circuit, pairs, ablated), pairs), 1e-10)


@pytest.mark.parametrize("variant", ["bert", "post_attn_only", "gemma_mqa"])
def test_mean_ablation_of_one_prompt_position_is_patching(variant):
    """With one prompt and one mean per position, the mean is the prompt itself, at every stage of every block order."""
    model, pairs = tiny_model(variant), random_pairs(1)
    view, ablation = patching(model, pairs)
    keep = torch.rand(view.graph.allowed.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    circuit = Circuit(view.graph, keep & view.graph.allowed)
    means = Fixed(mean_terms(view, [(pairs.corrupt, pairs)], per_position=True), 1)
    assert close(circuit_logits(view, circuit, pairs, means), circuit_logits(view, circuit, pairs, ablation), 1e-12)


@pytest.mark.parametrize("variant", ["gpt2", "llama_gqa", "neox", "attn_only", "no_norm"])
def test_pruning_keeps_the_output_under_patching(variant):
    model, pairs = tiny_model(variant), random_pairs(3)
    graph = Graph.of(model)
    job = Evaluation(model, graph, pairs)
    for seed in range(4):
        keep = torch.rand(graph.allowed.shape, generator=torch.Generator().manual_seed(seed)) < 0.12
        circuit = Circuit(graph, keep & graph.allowed)
        pruned = prune(circuit)
        assert pruned.n_edges < circuit.n_edges
        assert close(job.values(pruned), job.values(circuit), 1e-10)


def test_pruning_an_unreached_writer_changes_the_output_under_zero_ablation():
    model, pairs = tiny_model("gpt2"), random_pairs(3)
    circuit = Circuit.from_edges(Graph.of(model), ["input->a0.h0<v>", "a0.h0->logits", "m1->logits"])
    job = Evaluation(model, circuit.graph, pairs, ablation="zero")
    assert not close(job.values(prune(circuit)), job.values(circuit), 1e-3)
    with pytest.raises(CircuitError, match="m1->logits would change"):
        prune(circuit, "zero")


def test_an_ungrouped_circuit_runs_on_the_ungrouped_model():
    model, pairs = tiny_model("llama_gqa"), random_pairs(3)
    scores = trace_circuit(model, pairs, ungrouped=True)
    circuit = select(scores, top=60)
    assert evaluate(model, circuit, pairs).faithfulness == evaluate(model.ungrouped(), circuit, pairs).faithfulness
    with pytest.raises(CircuitError, match="trace it on this model"):
        evaluate(model, Circuit.empty(Graph(2, 3, 3)), pairs)


def test_the_statement_says_what_the_circuit_is_faithful_to():
    model, pairs = tiny_model("gpt2"), random_pairs(3)
    text = evaluate(model, select(trace_circuit(model, pairs), top=20), pairs, ablation="mean").statement
    one = evaluate(model, select(trace_circuit(model, pairs), top=20), pairs[0])
    assert repr(one) == one.statement and "on 1 prompt pair under" in one.statement
    for words in ("20 of", "each writer's mean output", "logit_diff", "3 prompt pairs", "under mean ablation"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ablation": "means"}, "got 'means' .did you mean 'mean'"),
        ({"calibration": torch.zeros(2, 3, dtype=torch.long)}, "calibration is for mean ablation"),
        ({"ablation": "mean", "calibration": torch.zeros(3)}, "must be whole numbers"),
        (
            {"ablation": "mean", "mean_per_position": True, "calibration": torch.ones(2, 3, dtype=torch.long)},
            r"one length .*\[3, 7\]",
        ),
        ({"metric": "accuracy"}, "metric must be one of"),
    ],
)
def test_what_evaluate_refuses(arguments, words):
    model = tiny_model("gpt2")
    with pytest.raises(CircuitError, match=words):
        evaluate(model, Circuit.empty(Graph.of(model)), random_pairs(2), **arguments)
