"""Ablating heads, and the copying effect, against what the model does without the head."""

from __future__ import annotations

import math

import pytest
import torch

from interp.errors import InterpError
from interp.heads import metrics
from interp.heads.causal import Effect, ablation_hooks, copying_ablations
from interp.heads.copying import CopyingMeter
from interp.heads.measure import scores_explain
from interp.heads.sequences import repeated_sequences
from models import HookedTransformer, TransformerConfig
from models.zoo.handbuilt import induction_model


def random_model(**changes) -> HookedTransformer:
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_head": 4, "d_vocab": 40, "n_ctx": 48, "d_mlp": 24, "bos_token_id": 0}
    model = HookedTransformer(TransformerConfig(**(sizes | changes)))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = 1.0 if "ln" in name and "weight" in name else 0.0
            parameter.copy_(gain + torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.requires_grad_(False)


TOKENS = torch.randint(0, 40, (3, 12), generator=torch.Generator().manual_seed(5))


def test_zero_ablation_is_a_head_without_output_weights():
    model, silenced = random_model(), random_model()
    silenced.blocks[1].attn.o.weight[:, 4:12] = 0.0  # heads 1 and 2
    ablated = model.run_with_hooks(TOKENS, fwd_hooks=ablation_hooks([(1, 1), (1, 2)]))
    torch.testing.assert_close(ablated, silenced(TOKENS), atol=1e-6, rtol=0)
    assert float((ablated - model(TOKENS)).abs().max()) > 1e-3


def test_mean_ablation_of_a_constant_output_changes_nothing():
    model = random_model(positions="none")
    tokens = torch.full((2, 8), 7)
    ablated = model.run_with_hooks(tokens, fwd_hooks=ablation_hooks([(0, 0), (1, 3)], "mean"))
    torch.testing.assert_close(ablated, model(tokens), atol=1e-5, rtol=0)


def test_ablation_reaches_the_chosen_rows_only():
    model = random_model()
    rows = torch.zeros(3, 12, dtype=torch.bool)
    rows[:, 6:] = True
    for how in ("zero", "mean"):
        change = model.run_with_hooks(TOKENS, fwd_hooks=ablation_hooks([(0, 1)], how, rows)) - model(TOKENS)
        assert float(change[:, :6].abs().max()) == 0.0 and float(change[:, 6:].abs().amax(-1).min()) > 0


def test_mean_ablation_puts_in_the_mean_of_its_rows():
    model, seen = random_model(), {}
    rows = TOKENS > 20

    def keep(z, hook):
        seen["z"] = z.clone()

    z = model.run_with_cache(TOKENS, names="blocks.0.attn.hook_z")[1]["z", 0]
    model.run_with_hooks(TOKENS, fwd_hooks=[*ablation_hooks([(0, 2)], "mean", rows), ("blocks.0.attn.hook_z", keep)])
    expected = z.clone()
    expected[:, :, 2][rows] = z[:, :, 2][rows].mean(0)
    torch.testing.assert_close(seen["z"], expected)


def test_ablations_leave_no_hook_behind():
    model = random_model()

    def fail(tensor, hook):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        model.run_with_hooks(TOKENS, fwd_hooks=[*ablation_hooks([(0, 0)]), ("blocks.1.hook_resid_post", fail)])
    assert not any(model.hook_point(name).is_hooked for name in model.hook_names)
    with pytest.raises(InterpError, match="how must be"):
        ablation_hooks([(0, 0)], "resample")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "none"},
        {"norm": "rms_norm", "block": "parallel"},
        {"norm": "rms_norm_offset", "block": "sandwich", "n_kv_heads": 2},
    ],
)
def test_copying_effect_of_a_last_layer_head_is_what_its_output_adds(changes: dict):
    """Against the logits of the stream with and without the head, both through the final norm at its original scale."""
    model = random_model(**changes)
    batch = repeated_sequences(model, (8,), 2, 0, None).batches[0]
    targets = batch.targets()["induction"]
    meter = CopyingMeter(model, (0, 1), batch.tokens, targets)
    model.run_with_hooks(batch.tokens, fwd_hooks=meter.hooks())
    head, rows = 2, targets.any(-1)
    names = ["blocks.1.attn.hook_z", "blocks.1.ln1_post.hook_scale", "ln_final.hook_scale"]
    cache = model.run_with_cache(batch.tokens, names=[name for name in names if name in model.hook_names])[1]
    out = cache["z", 1][:, :, head] @ model.blocks[1].attn.W_O[head]
    for norm, name in ((getattr(model.blocks[1], "ln1_post", None), names[1]), (model.ln_final, names[2])):
        if name in cache:
            out = norm.centred(out) / cache[name] * norm.gain
    logits = out @ model.W_U
    copied = batch.tokens.gather(1, targets.int().argmax(-1))
    expected = logits.gather(-1, copied[..., None])[..., 0] - logits.mean(-1)
    torch.testing.assert_close(meter.effects(1)[:, head][rows], expected[rows], atol=1e-5, rtol=1e-4)
    assert float(meter.effects(1)[:, head][~rows].abs().max()) < 1e-6


def test_ablating_the_induction_head_costs_the_copied_token_its_logit():
    model = induction_model(41, 101)
    batch = repeated_sequences(model, (40,), 2, 0, None).batches[0]
    effects = copying_ablations(model, batch, [(1, 0)])
    assert effects[1, 0].mean == pytest.approx(60 * (1 - 1 / 40), rel=0.02)
    assert copying_ablations(model, batch, []) == {}


def test_copying_ablations_compare_the_target_with_the_vocabulary():
    model = random_model()
    batch = repeated_sequences(model, (8,), 3, 0, None).batches[0]
    rows = slice(9, 17)
    mask = torch.zeros_like(batch.kept)
    mask[:, rows] = True
    ablated = model.run_with_hooks(batch.tokens, fwd_hooks=ablation_hooks([(0, 1)], "mean", mask))

    def copied(logits):
        target = logits[:, rows].gather(-1, batch.tokens[:, 2:10, None])[..., 0]
        return (target - logits[:, rows].mean(-1)).flatten()

    effect = copying_ablations(model, batch, [(0, 1)])[0, 1]
    change = copied(model(batch.tokens)) - copied(ablated)
    assert effect.mean == pytest.approx(float(change.mean()), abs=1e-5)
    assert effect.error == pytest.approx(float(change.std()) / math.sqrt(24), abs=1e-5)


def test_effect_of_few_rows():
    assert math.isnan(Effect.of(torch.tensor([])).mean)
    assert Effect.of(torch.tensor([2.0])).error == math.inf
    assert Effect.of(torch.tensor([1.0, 3.0])).error == pytest.approx(1.0)


def test_replacing_every_pattern_by_the_softmax_of_its_scores_changes_nothing():
    model, scores = random_model(n_kv_heads=2, positions="rotary"), {}

    def keep(tensor, hook):
        scores[hook.layer] = tensor

    def replace(pattern, hook):
        assert scores_explain(scores[hook.layer], pattern)
        return scores[hook.layer].softmax(-1)

    def linear(pattern, hook):
        return metrics.linear_attention(scores[hook.layer], metrics.visible_keys(scores[hook.layer]))

    hooks = [("blocks.*.attn.hook_attn_scores", keep)]
    again = model.run_with_hooks(TOKENS, fwd_hooks=[*hooks, ("blocks.*.attn.hook_pattern", replace)], return_type="loss")
    torch.testing.assert_close(again, model(TOKENS, return_type="loss"))
    other = model.run_with_hooks(TOKENS, fwd_hooks=[*hooks, ("blocks.*.attn.hook_pattern", linear)], return_type="loss")
    assert abs(float(other - again)) > 1e-6


def test_scores_that_are_not_what_the_softmax_saw_are_noticed():
    pattern = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)).masked_fill(
        ~torch.ones(6, 6).tril().bool(), -math.inf
    )
    scores, pattern = pattern, pattern.softmax(-1)
    assert scores_explain(scores, pattern)
    assert scores_explain(scores, 0.6 * pattern)  # part of each row went to a sink outside
    assert not scores_explain(pattern, pattern)
    assert scores_explain(scores, pattern.bfloat16().float())
