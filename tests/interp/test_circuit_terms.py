"""Writers' terms sum to the residual stream, and gradients pulled back by formula equal autograd's."""

from __future__ import annotations

import pytest
import torch
from circuit_helpers import VARIANTS, close, random_pairs, tiny_model

from interp.circuits.access import ModelView, NormWeights
from interp.circuits.contributions import walk, walk_difference
from interp.circuits.gradients import norm_point, norm_vjp, pull_back
from interp.circuits.metrics import METRICS
from interp.circuits.runs import gradient_run, plain_run

READS = {"attn": "blocks.{}.hook_resid_pre", "mlp": "blocks.{}.hook_mlp_in"}


def stream_before(model, tokens, layer, kind):
    """The residual stream that a stage's readers see."""
    if kind == "logits":
        return model(tokens, stop_at_layer=layer)
    return model.run_with_cache(tokens, names=READS[kind].format(layer))[1][READS[kind].format(layer)]


def constants(model, layer, kind):
    """Output biases written so far; in pre-norm and sandwich blocks they belong to no writer."""
    total = torch.zeros(model.cfg.d_model, dtype=torch.float64)
    for block in list(model.blocks)[:layer] + ([model.blocks[layer]] if kind == "mlp" and model.cfg.block != "parallel" else []):
        if model.cfg.block in ("pre", "parallel") and block.attn.b_O is not None:
            total = total + block.attn.b_O
        if model.cfg.block == "sandwich" and block.ln1_post.bias is not None:
            total = total + block.ln1_post.bias
    return total.detach()


@pytest.mark.parametrize("variant", VARIANTS)
def test_terms_sum_to_the_stream_at_every_reader(variant):
    model, pairs = tiny_model(variant), random_pairs(3)
    view = ModelView.of(model)
    for stage in walk(view, plain_run(view, pairs.clean, pairs).writes):
        stream = stream_before(model, pairs.clean, stage.layer, stage.kind).detach()
        rebuilt = stage.terms.sum(0).unflatten(0, stream.shape[:2]) + constants(model, stage.layer, stage.kind)
        # An MLP of a parallel block reads the stream before its own block's heads have written.
        assert close(rebuilt, stream, 1e-12), (stage.layer, stage.kind)


@pytest.mark.parametrize("variant", VARIANTS)
def test_differences_sum_to_corrupt_minus_clean(variant):
    model, pairs = tiny_model(variant), random_pairs(3)
    view = ModelView.of(model)
    clean, corrupt = (plain_run(view, tokens, pairs).writes for tokens in (pairs.clean, pairs.corrupt))
    for stage in walk_difference(view, clean, corrupt):
        change = stream_before(model, pairs.corrupt, stage.layer, stage.kind) - stream_before(
            model, pairs.clean, stage.layer, stage.kind
        )
        assert close(stage.terms.sum(0), change.detach().flatten(0, 1), 1e-11), (stage.layer, stage.kind)


@pytest.mark.parametrize("variant", ["gemma_mqa", "sandwich_bias"])
def test_sandwich_contributions_sum_to_the_attention_output(variant):
    model, pairs = tiny_model(variant), random_pairs(3)
    view = ModelView.of(model)
    out = model.run_with_cache(pairs.clean, names="blocks.1.hook_attn_out")[1]["blocks.1.hook_attn_out"].detach()
    bias = model.blocks[1].ln1_post.bias
    for stage in walk(view, plain_run(view, pairs.clean, pairs).writes):
        if (stage.layer, stage.kind) == (1, "mlp"):
            heads = stage.terms[view.graph.heads(1)].sum(0).unflatten(0, out.shape[:2])
            assert close(heads if bias is None else heads + bias, out, 1e-12)


@pytest.mark.parametrize("centred", [False, True])
def test_norm_vjp_equals_autograd(centred):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weights = NormWeights(gain=draw(8), bias=None, eps=1e-5, centred=centred)
    x, gradient = draw(5, 8).requires_grad_(), draw(3, 5, 8)
    y = x - x.mean(-1, keepdim=True) if centred else x
    out = y / (y.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weights.gain
    wanted = torch.stack([torch.autograd.grad(out, x, each, retain_graph=True)[0] for each in gradient])
    assert close(norm_vjp(gradient, norm_point(x.detach(), weights)), wanted, 1e-12)
    matrices, at_heads = draw(3, 8, 2), draw(5, 3, 2)
    long_way = norm_vjp(torch.einsum("the,hde->htd", at_heads, matrices), norm_point(x.detach(), weights))
    assert close(pull_back(at_heads, matrices, norm_point(x.detach(), weights)), long_way, 1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_reader_gradients_equal_autograd_on_split_inputs(variant):
    """The reference splits the stream into one copy per reader, which our passes never do."""
    model, pairs = tiny_model(variant), random_pairs(3)
    view, metric = ModelView.of(model), METRICS["logit_diff"]
    gradients = gradient_run(view, pairs, metric).gradients
    inputs: dict[str, torch.Tensor] = {}

    def keep(tensor, hook):
        inputs[hook.name] = tensor
        return tensor

    kinds = ["q_input", "k_input", "v_input"] + ([] if model.cfg.attn_only else ["mlp_in"])
    logits = model.run_with_hooks(pairs.clean, fwd_hooks=[(f"blocks.*.hook_{kind}", keep) for kind in kinds])
    total = metric(logits[torch.arange(3), pairs.last], pairs).sum()
    found = dict(zip(inputs, torch.autograd.grad(total, list(inputs.values())), strict=True))
    everything = slice(0, pairs.clean.numel())
    for layer in range(2):
        parts = [found[f"blocks.{layer}.hook_{kind}_input"].flatten(0, 1).transpose(0, 1) for kind in "qkv"]
        assert close(gradients.at(layer, "attn", everything), torch.cat(parts), 1e-11)
        if not model.cfg.attn_only:
            wanted = found[f"blocks.{layer}.hook_mlp_in"].flatten(0, 1)[None]
            assert close(gradients.at(layer, "mlp", everything), wanted, 1e-11)


def test_variants_are_all_kinds_of_block():
    orders = {tiny_model(variant).cfg.block for variant in VARIANTS}
    assert orders == {"pre", "post", "sandwich", "parallel"}
