"""Exact edge patching against whole-model runs, compiled programs with known circuits, and gradients where those are exact."""

from __future__ import annotations

import json

import pytest
import torch
from circuit_helpers import VARIANTS, close, random_pairs, tiny_model

import interp.circuits.exact as exact
from interp.circuits import CircuitError, trace_circuit
from interp.circuits.metrics import METRICS
from interp.prompts import PromptPairs
from models import HookedTransformer, TransformerConfig


def by_hand(model, pairs, edge):
    """The effect of one edge, by a full run with hooks at the reader's own input."""
    writer, reader = edge.split("->")
    name = {"i": "blocks.0.hook_resid_pre", "a": f"blocks.{writer[1]}.attn.hook_result", "m": f"blocks.{writer[1]}.hook_mlp_out"}
    outputs = [model.run_with_cache(tokens, names=name[writer[0]])[1][name[writer[0]]] for tokens in (pairs.clean, pairs.corrupt)]
    change = (outputs[1] - outputs[0]).detach()
    if writer[0] == "a":
        change = change[:, :, int(writer.split("h")[1])]

    def add(tensor, hook):
        if "_input" in hook.name:
            tensor[:, :, int(reader.split(".")[1][1])] += change
        else:
            tensor += change

    kind = {"m": "hook_mlp_in", "l": "hook_resid_post"}.get(reader[0], f"hook_{reader[-2]}_input")
    layer = reader[1] if reader[0] in "am" else model.cfg.n_layers - 1
    patched = model.run_with_hooks(pairs.clean, fwd_hooks=[(f"blocks.{layer}.{kind}", add)])
    values = [
        METRICS["logit_diff"](logits[torch.arange(len(pairs)), pairs.last], pairs) for logits in (patched, model(pairs.clean))
    ]
    return float((values[0] - values[1]).mean().detach())


@pytest.mark.parametrize("variant", ["gpt2", "llama_gqa", "neox", "no_norm"])
def test_every_edge_equals_a_whole_run_with_hooks(variant):
    model, pairs = tiny_model(variant), random_pairs(2)
    scores = trace_circuit(model, pairs, method="exact")
    for edge, score in scores.items():
        assert score == pytest.approx(by_hand(model, pairs, edge), abs=1e-11), edge


@pytest.mark.parametrize("variant", VARIANTS)
def test_exact_scores_do_not_depend_on_batching_or_padding(variant, monkeypatch):
    model, lengths = tiny_model(variant), [5, 7, 3]
    whole = trace_circuit(model, random_pairs(lengths=lengths), method="exact").values
    monkeypatch.setattr(exact, "TOKENS_PER_RUN", 60)
    left = trace_circuit(model, random_pairs(lengths=lengths, side="left"), method="exact", batch_size=2).values
    assert close(left, whole, 1e-10)


@pytest.mark.parametrize("variant", ["no_norm", "attn_only"])
def test_eap_is_exact_into_the_logits_without_a_final_norm(variant):
    model, pairs = tiny_model(variant, final_norm=False), random_pairs(3)
    first_order, whole = trace_circuit(model, pairs), trace_circuit(model, pairs, method="exact")
    assert whole.values[:, -1].abs().max() > 1e-3
    assert torch.allclose(first_order.values[:, -1], whole.values[:, -1], atol=1e-12, rtol=0)


def test_eap_is_exact_everywhere_in_a_linear_model():
    """Without norms, MLPs and keys every pattern is uniform whatever is read, so the logits are linear in every input."""
    model, pairs = tiny_model("attn_only", norm="none", n_layers=3), random_pairs(3)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.k.weight.zero_()
    first_order, whole = trace_circuit(model, pairs), trace_circuit(model, pairs, method="exact")
    assert whole.values.abs().max() > 1e-3
    assert torch.allclose(first_order.values, whole.values, atol=1e-12, rtol=0)


def test_patching_a_shared_key_changes_all_its_query_heads_at_once():
    model, pairs = tiny_model("llama_gqa"), random_pairs(2)
    seen = {}

    def keep(tensor, hook):
        seen[len(seen)] = tensor.detach().clone()

    def shift(tensor, hook):
        tensor[:, :, 1] += 1.0

    name = "blocks.1.attn.hook_z"
    model.run_with_hooks(pairs.clean, fwd_hooks=[(name, keep)])
    model.run_with_hooks(pairs.clean, fwd_hooks=[("blocks.1.hook_k_input", shift), (name, keep)])
    changed = (seen[0] - seen[1]).abs().amax((0, 1, 3))
    assert (changed[2:] > 0).all() and not changed[:2].any()
    native = trace_circuit(model, pairs, method="exact", edges=["m0->a1.g1<k>"])["m0->a1.g1<k>"]
    assert native == pytest.approx(by_hand(model, pairs, "m0->a1.g1<k>"), abs=1e-11)


def test_a_head_has_no_effect_on_a_parallel_mlp():
    model, pairs = tiny_model("neox"), random_pairs(2)
    with pytest.raises(CircuitError, match="m1 reads before a1.h0 has written"):
        trace_circuit(model, pairs, method="exact", edges=["a1.h0->m1"])

    def silence(tensor, hook):
        return torch.zeros_like(tensor)

    name = "blocks.1.hook_mlp_out"
    _, plain = model.run_with_cache(pairs.clean, names=name)
    with model.hooks(fwd_hooks=[("blocks.1.attn.hook_z", silence)]):
        _, silenced = model.run_with_cache(pairs.clean, names=name)
    assert torch.equal(plain[name], silenced[name])


def test_a_subset_of_edges():
    model, pairs = tiny_model("gpt2"), random_pairs(2)
    whole = trace_circuit(model, pairs, method="exact")
    some = trace_circuit(model, pairs, method="exact", readers=["logits"], edges=["a0.h1->a1.h2<k>"])
    chosen = {edge for edge, score in some.items() if score}
    assert chosen == {"a0.h1->a1.h2<k>"} | {edge for edge in whole.graph.edge_names() if edge.endswith("->logits")}
    assert all(some[edge] == pytest.approx(whole[edge], abs=1e-12) for edge in chosen)
    with pytest.raises(CircuitError, match="no reader called 'logit'"):
        trace_circuit(model, pairs, method="exact", readers=["logit"])


def test_kl_has_exact_scores_although_its_gradient_is_zero():
    scores = trace_circuit(tiny_model("gpt2"), random_pairs(2), method="exact", metric="kl")
    assert scores.values.abs().max() > 1e-3 and scores.values.min() > -1e-12


def compiled_model(answer: dict, weights: dict[str, torch.Tensor]) -> HookedTransformer:
    shape = answer["config"]
    sizes = {key: shape[key] for key in ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab", "n_ctx", "d_vocab_out")}
    kind = {"norm": "none", "causal": shape["causal"], "activation": shape["activation"]}
    biases = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
    model = HookedTransformer(TransformerConfig(**sizes, **kind, **biases))
    names = {"embed.weight": weights["token_embed"], "pos_embed.weight": weights["pos_embed"]}
    names["unembed.weight"] = weights["unembed"].T
    ours = {"W_Q": "q", "W_K": "k", "W_V": "v", "W_O": "o", "W_in": "up", "W_out": "down"}
    for key, value in weights.items():
        if key.startswith("blocks."):
            prefix, _, part = key.rpartition(".")
            module = ours.get(part) or ours[f"W_{part.removeprefix('b_')}"]
            names[f"{prefix}.{module}.{'weight' if part.startswith('W') else 'bias'}"] = (
                value.T if part.startswith("W") else value
            )
    model.load_state_dict({key: value.contiguous() for key, value in names.items()})
    return model.double()


PROGRAMS = ["reverse", "frac_prevs", "hist", "count_a", "pair_balance", "sort_freq", "detect_pattern_abc"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_of_a_compiled_program(shared_data, name):
    from safetensors.torch import load_file

    file = shared_data / "compiled_programs" / name
    answer, weights = json.loads(file.with_suffix(".json").read_text()), load_file(file.with_suffix(".safetensors"))
    model = compiled_model(answer, weights)
    clean, corrupt = (torch.tensor([sample[kind] for sample in answer["samples"]]) for kind in ("clean", "corrupt"))
    length = clean.shape[1]
    # One pair per prompt and position, so that every output position is looked at.
    clean, corrupt = (x.repeat_interleave(length - 1, 0) for x in (clean, corrupt))
    last = torch.arange(1, length).repeat(len(answer["samples"]))
    none = torch.full((len(clean), 1), -1)
    pairs = PromptPairs(clean, corrupt, none, none, torch.ones_like(clean, dtype=torch.bool), last)
    output = model(clean).detach()[torch.arange(len(clean)), last]

    def change(logits, _):
        return (logits - output).abs().amax(-1)

    scores = trace_circuit(model, pairs, method="exact", metric=change)
    assert set(scores.graph.edge_names()) >= set(answer["all_edges"])
    # A mean over pairs above a thousandth of the smallest change that counts means that some pair changed.
    found = {edge for edge, score in scores.items() if score > 1e-3 / len(clean)}
    assert found == set(answer["true_edges"])
