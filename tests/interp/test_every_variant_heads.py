"""`head_scores` on every variant: each score is that of the pattern the model really uses, and what has no meaning is NaN."""

from __future__ import annotations

import logging

import pytest
import torch

from interp.errors import InterpError
from interp.heads import HeadScores, composition_scores, head_scores
from interp.heads.scores_result import COLUMNS
from models import HookedTransformer
from models.build import make_model
from tests.models.variants import VARIANTS, tiny_config, tiny_model, tiny_tokens

EVERY = pytest.mark.parametrize("variant", [name for name in VARIANTS if not VARIANTS[name].get("encoder")])
SHARES = ("entropy", "normalized_entropy", "logit_std", "uniformity_error", "linearity_error", "first_only_rows")


@EVERY
def test_scores_are_those_of_the_models_own_patterns(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    scores = head_scores(model, tokens)
    patterns = model.run_with_cache(tokens, names="blocks.*.attn.hook_pattern")[1]
    for layer in range(model.n_layers):
        pattern = patterns[f"blocks.{layer}.attn.hook_pattern"]
        n_heads = pattern.shape[1]
        assert scores.heads_in[layer] == n_heads
        torch.testing.assert_close(scores.previous_token[layer, :n_heads], previous_token(model, layer, pattern))
        torch.testing.assert_close(scores.row_sum[layer, :n_heads], pattern.sum(-1).mean((0, 2)), atol=1e-5, rtol=1e-5)
        assert bool(scores.previous_token[layer, n_heads:].isnan().all())
        signed = model.blocks[layer].attn.signed_pattern
        for name in SHARES:
            row = getattr(scores, name)[layer, :n_heads]
            assert bool((row.isnan() if signed else row.isfinite()).all()), (name, layer)
        assert signed == any(each.layer == layer and "entropies" in each.what for each in scores.left_out)
        assert not signed or not any(label.layer == layer for label in scores.labels)
    assert all(0 <= label.head < scores.heads_in[label.layer] for label in scores.labels)


def previous_token(model, layer, pattern):
    """Mean weight of the previous key, over the rows that can see it; which keys a layer selects is its own doing."""
    weights = pattern.diagonal(-1, 2, 3)
    masked = {f"blocks.{layer}.attn.hook_attn_scores"} <= set(model.hook_names)
    selects = f"blocks.{layer}.attn.hook_selection" in model.hook_names
    counted = weights != 0 if masked and not selects else torch.ones_like(weights, dtype=torch.bool)
    return weights.sum((0, 2)) / counted.sum((0, 2))


@EVERY
def test_results_survive_a_file_and_tables_hold_real_heads_only(variant, tmp_path):
    scores = head_scores(tiny_model(variant), distances=(4, 7), batch=2)
    assert scores.layer == tuple(range(3)) and scores.distance == (4, 7)
    back = HeadScores.load(scores.save(tmp_path / "scores.json"))
    assert back.left_out == scores.left_out and back.heads_in == scores.heads_in
    assert all(torch.equal(getattr(back, name).nan_to_num(), getattr(scores, name).nan_to_num()) for name in COLUMNS)
    places = [(head["layer"], head["head"]) for head in scores.to_heads_json()["heads"]]
    assert places == [(layer, head) for layer, n in enumerate(scores.heads_in) for head in range(n)]
    assert list(scores.to_pandas()[["layer", "head"]].itertuples(index=False, name=None)) == places


def without_patterns(model: HookedTransformer, layers: tuple[int, ...]) -> HookedTransformer:
    """The same model, these layers of which show no pattern."""
    model._hook_points = {
        name: point for name, point in model._hook_points.items() if name not in {f"blocks.{i}.attn.hook_pattern" for i in layers}
    }
    return model


def test_last_states_are_not_taken_for_logits():
    """A model without a head has no loss, also where its states are as wide as its vocabulary."""
    wide = {"d_vocab": 32, "d_vocab_out": 32}
    without, whole = (head_scores(tiny_model("sinusoidal", **wide, **head), distances=(5,)) for head in ({}, {"head": "lm"}))
    assert without.loss_first_half is None and whole.loss_first_half is not None


def test_a_layer_without_a_pattern_is_left_out_and_said(caplog):
    whole, tokens = head_scores(tiny_model("llama"), tiny_tokens()), tiny_tokens()
    with caplog.at_level(logging.WARNING):
        scores = head_scores(without_patterns(tiny_model("llama"), (1,)), tokens)
    for name in COLUMNS:
        table, truth = getattr(scores, name), getattr(whole, name)
        assert name == "ov_copying" or bool(table[1].isnan().all()), name
        torch.testing.assert_close(table[[0, 2]], truth[[0, 2]], equal_nan=True)
    assert [(each.layer, each.what) for each in scores.left_out] == [(1, "scores")]
    assert "layers without a pattern: 1" in scores.summary() and "Without scores: layers 1" in caplog.text
    assert scores.to_heads_json()["left_out"][0]["layer"] == 1 and "left_out" not in whole.to_heads_json()
    assert scores.n_targets[:, 1].sum() == 0


def test_an_encoder_decoder_is_refused():
    encoder = tiny_config("t5_encoder", head="none")
    model = make_model(tiny_config("t5_decoder", encoder=encoder, cross_attention=True))
    with pytest.raises(InterpError, match="an encoder-decoder has in both stacks"):
        head_scores(model, tiny_tokens())


def test_composition_of_layers_of_two_shapes_is_that_of_each_pair():
    scores = composition_scores(tiny_model("layers_of_two_shapes"))
    assert scores.k.shape == (3, 4, 3, 4) and not scores.left_out
    assert bool(scores.k[0, :, 1, :2].isfinite().all()) and bool(scores.k[0, :, 1, 2:].isnan().all())
    assert bool(scores.k[1, :2, 2].isfinite().all()) and bool(scores.k[1, 2:, 2].isnan().all())


def test_copying_effects_count_the_scales_of_block_and_logits():
    """A head's effect is linear in both: so many times the residual and logit scale, so many times the effect."""
    sizes = {"block": "pre", "norm": "none", "d_mlp": 0, "n_layers": 1}
    effects = []
    for scales in ({}, {"residual_scale": 0.5, "logit_scale": 3.0}):
        model = HookedTransformer(tiny_config("gpt2", **sizes, **scales))
        model.load_state_dict(tiny_model("gpt2", **sizes).state_dict())
        effects.append(head_scores(model, distances=(4,), batch=2).copying_effect)
    torch.testing.assert_close(effects[1], 1.5 * effects[0])
