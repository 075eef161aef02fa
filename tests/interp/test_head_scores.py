"""`head_scores` on models whose heads are known because they were written down."""

from __future__ import annotations

import math

import pytest
import torch
from head_models import assert_same, column, labels_of, random_model

from interp.heads import head_scores
from interp.heads import patterns as P
from interp.heads.scores_result import COLUMNS
from interp.prompts import repeated_tokens
from models import HookedTransformer
from models.zoo.handbuilt import HeadRule, Match, build, induction_model, pointer_model, single_head_model

# The induction circuit --------------------------------------------------------------------------------------------------


def test_an_ideal_induction_head_scores_exactly_one():
    scores = head_scores(induction_model(41, 41), distances=(20,))
    assert column(scores, "induction", 1) == column(scores, "induction_min", 1) == 1.0
    assert column(scores, "previous_token", 0) == 1.0
    assert column(scores, "induction_baseline", 1) == pytest.approx(0.032879, abs=1e-6)
    assert scores.loss_second_half is not None and scores.loss_second_half < 1e-6
    assert scores.loss_first_half is not None and scores.loss_first_half > 3
    assert scores.distance == (20,) and scores.prepend_bos


def test_the_usual_formulas_do_not_give_the_ideal_head_one():
    """Means over all queries, or over the whole stripe, dilute the score: what ours must not equal."""
    model, n = induction_model(41, 41), 20
    tokens = repeated_tokens(41, n, 2, bos_token_id=0)
    pattern = model.run_with_cache(tokens, names="blocks.1.attn.hook_pattern")[1]["pattern", 1][:, 0]
    targets = P.induction_targets(tokens).float()
    product = ((pattern * targets).sum((1, 2)) / pattern.sum((1, 2))).mean()
    difference = 1 - ((pattern - targets).abs() * targets).sum((1, 2)) / 41 - (1 - targets.sum((1, 2)) / 41)
    stripe = pattern.diagonal(1 - n, dim1=1, dim2=2).mean()
    assert float(product) == pytest.approx(0.487805, abs=1e-6)
    assert float(difference.mean()) == pytest.approx(0.487805, abs=1e-6)
    assert float(stripe) == pytest.approx(0.913528, abs=1e-6)
    assert column(head_scores(model, tokens), "induction", 1) == 1.0


def test_without_bos_the_first_position_is_its_own_predecessor():
    model = induction_model(41, 40, bos_token_id=None)
    scores = head_scores(model, distances=(20,))
    assert column(scores, "induction", 1) == pytest.approx(1 - 1 / 40)
    assert not scores.prepend_bos
    tokens = repeated_tokens(41, 20, 4)
    logits = model(tokens)[:, 20:-1]
    assert torch.equal(logits[:, 1:].argmax(-1), tokens[:, 22:])
    # The first of the 19 queries is torn between its successor and, at the first position, itself.
    torn = logits[:, 0].gather(-1, torch.stack([tokens[:, 0], tokens[:, 1]], dim=1))
    torch.testing.assert_close(torn, torch.full((4, 2), 30.0))


def test_without_its_previous_token_head_it_is_no_induction_head():
    scores = head_scores(induction_model(41, 101, with_previous_head=False), distances=(20, 30))
    torch.testing.assert_close(scores.induction, scores.induction_baseline)
    assert labels_of(scores) == {}
    assert column(
        head_scores(induction_model(41, 41, with_previous_head=False), distances=(20,)), "induction", 1
    ) == pytest.approx(0.032879, abs=1e-6)


@pytest.mark.parametrize(
    "ov, label, copying", [(1.0, "induction", 1.0), (-1.0, "anti-induction", -1.0), (0.0, "prefix-matching", math.nan)]
)
def test_prefix_matching_is_named_by_what_it_writes(ov: float, label: str, copying: float):
    scores = head_scores(induction_model(60, 101, ov=ov))
    assert scores.distance == scores.requested_distances == (20, 35, 50)
    assert column(scores, "induction_min", 1) == 1.0
    assert labels_of(scores) == {"0.0": ["previous-token"], "1.0": [label]}
    assert column(scores, "ov_copying", 1) == pytest.approx(copying, nan_ok=True)
    assert column(scores, "copying_effect", 1) == pytest.approx(ov * 60 * (1 - 1 / 60), rel=1e-5)


def test_a_head_that_copies_through_another_head_is_induction_too():
    """Its output goes to a block that the unembedding does not read; a third layer moves it on. Only ablation sees that."""
    previous = HeadRule((Match("position", "position", -1),), "token", "previous")
    match = HeadRule((Match("token", "previous"),), "token", "pointer", 1.0)
    move = HeadRule((Match("position", "position"),), "pointer", "out")
    scores = head_scores(build([[previous], [match], [move]], 60, 101, bos_token_id=0))
    assert column(scores, "copying_effect", 1) == 0.0
    assert column(scores, "ablation_effect", 1) == pytest.approx(60 * 49 / 50, rel=0.05)
    assert math.isnan(column(scores, "ablation_effect", 0))
    assert labels_of(scores)["1.0"] == ["induction"]
    assert "ablating" in scores.labels_at(1, 0)[0].evidence


def test_induction_by_query_composition():
    scores = head_scores(pointer_model(60, 101))
    assert column(scores, "induction_min", 1) == 1.0
    assert labels_of(scores) == {"0.0": ["duplicate-token"], "1.0": ["induction"]}


# Negative controls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, name, label",
    [
        ("previous", "previous_token", "previous-token"),
        ("self", "current_token", "current-token"),
        ("duplicate", "duplicate_token", "duplicate-token"),
        ("sink", "first_token", "first-token"),
    ],
)
def test_other_heads_are_called_what_they_are(kind: str, name: str, label: str):
    scores = head_scores(single_head_model(kind, 60, 101))
    assert column(scores, name) == 1.0
    assert column(scores, "induction") == pytest.approx(0, abs=1e-12)
    assert labels_of(scores) == {"0.0": [label]}


def test_a_predecessor_head_is_no_induction_head():
    scores = head_scores(pointer_model(60, 101, shift=-1))
    assert column(scores, "predecessor", 1) == 1.0
    assert column(scores, "induction", 1) == pytest.approx(0, abs=1e-12)
    assert labels_of(scores)["1.0"] == ["predecessor"]


def test_a_fixed_offset_is_positional():
    scores = head_scores(single_head_model("offset", 60, 101, offset=34))
    assert scores.by_distance[0, :, 0, 0].tolist() == pytest.approx([0.0, 1.0, 0.0], abs=0.03)
    assert column(scores, "induction_min") == pytest.approx(0, abs=1e-12)
    assert labels_of(scores) == {"0.0": ["positional"]}


def test_a_sink_head_has_no_entropy_beside_the_sink():
    scores = head_scores(single_head_model("sink", 60, 101))
    assert column(scores, "normalized_entropy") == pytest.approx(0, abs=1e-9)
    assert math.isnan(column(scores, "normalized_entropy_no_first"))
    assert column(scores, "first_only_rows") == 1.0


def test_a_uniform_head():
    scores = head_scores(single_head_model("uniform", 60, 101))
    assert labels_of(scores) == {}
    assert column(scores, "normalized_entropy") == pytest.approx(1) == column(scores, "normalized_entropy_no_first")
    mean = sum(math.lgamma(2 * n + 2) / (2 * n + 1) for n in (20, 35, 50)) / 3
    assert column(scores, "entropy") == pytest.approx(mean, rel=1e-5)
    assert column(scores, "logit_std") == 0.0 and math.isinf(column(scores, "temperature"))
    torch.testing.assert_close(scores.by_distance.mean(1), scores.baselines)


@pytest.mark.parametrize("seed", [0, 1])
def test_an_untrained_model_is_near_uniform_and_earns_no_label(seed: int):
    scores = head_scores(random_model(seed, 0.05, norm="none"), distances=(10, 20), batch=16)
    assert labels_of(scores) == {}
    assert float(scores.normalized_entropy.min()) > 0.95
    torch.testing.assert_close(scores.by_distance, scores.baselines[:, None].expand_as(scores.by_distance), atol=0.03, rtol=0)


# Texts of one's own -----------------------------------------------------------------------------------------------------


def test_text_without_repeats_has_no_induction_score():
    scores = head_scores(induction_model(41, 41), torch.arange(30))
    assert math.isnan(column(scores, "induction", 1)) and math.isnan(column(scores, "duplicate_token", 1))
    assert scores.n_targets[:3, 1, 0].tolist() == [0, 28, 0]
    assert column(scores, "previous_token", 0) == 1.0
    assert scores.loss_first_half is None and scores.source == "given tokens" and scores.prepend_bos is None
    assert labels_of(scores) == {"0.0": ["previous-token"]}


def test_given_repeats_do_not_prove_induction():
    """One distance cannot tell matching from a fixed offset, so the label is the weaker one."""
    scores = head_scores(induction_model(41, 41), repeated_tokens(41, 20, 2, bos_token_id=0))
    assert column(scores, "induction", 1) == 1.0 and math.isnan(column(scores, "induction_min", 1))
    assert labels_of(scores)["1.0"] == ["prefix-matching"]


def test_batches_only_cut_the_work():
    model, tokens = random_model(), torch.randint(1, 40, (5, 20), generator=torch.Generator().manual_seed(3))
    whole = head_scores(model, tokens, batch=5)
    assert_same(head_scores(model, tokens, batch=2), whole)
    assert_same(head_scores(model, tokens.flip(0), batch=5), whole)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("changes", [{}, {"positions": "rotary", "n_kv_heads": 2, "norm": "rms_norm"}, {"window": 5}])
def test_padding_changes_nothing(side: str, changes: dict):
    model = random_model(**changes)
    tokens = torch.cat(
        [torch.zeros(3, 1, dtype=torch.long), torch.randint(1, 12, (3, 18), generator=torch.Generator().manual_seed(0))], 1
    )
    pads = torch.full((3, 6), int(tokens[0, 3]))
    real, blank = torch.ones_like(tokens), torch.zeros_like(pads)
    order = slice(None, None, -1) if side == "left" else slice(None)
    padded = torch.cat([tokens, pads][order], dim=1)
    mask = torch.cat([real, blank][order], dim=1)
    assert_same(head_scores(model, padded, attention_mask=mask), head_scores(model, tokens))


def test_padding_of_different_lengths_pools_rows():
    model = random_model()
    tokens = torch.randint(1, 12, (2, 16), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens)
    mask[1, 10:] = 0
    both = head_scores(model, tokens, attention_mask=mask)
    parts = [head_scores(model, tokens[:1]), head_scores(model, tokens[1:, :10])]
    total = sum(part.previous_token * n for part, n in zip(parts, (15, 9), strict=True))
    torch.testing.assert_close(both.previous_token, total / 24)
    assert both.n_targets[1].unique().tolist() == [24]
    torch.testing.assert_close(both.entropy, sum(part.entropy * n for part, n in zip(parts, (16, 10), strict=True)) / 26)


def test_a_sliding_window_limits_the_keys_that_count():
    model = single_head_model("uniform", 40, 30)
    sliding = HookedTransformer(model.cfg.replace(window=4, layer_types=()))
    sliding.load_state_dict(model.state_dict())
    scores = head_scores(sliding, torch.arange(20))
    assert column(scores, "entropy") == pytest.approx(sum(math.log(min(i + 1, 4)) for i in range(20)) / 20)
    assert column(scores, "normalized_entropy") == pytest.approx(1)
    assert scores.n_targets[3].item() == 3  # the first token is in view of rows 1, 2 and 3


def test_a_distance_beyond_the_window_is_left_out():
    """It has no visible target; the other distance stands alone, and one distance does not prove induction."""
    model = induction_model(41, 81)
    sliding = HookedTransformer(model.cfg.replace(window=25, layer_types=()))
    sliding.load_state_dict(model.state_dict())
    scores = head_scores(sliding, distances=(20, 35))
    assert scores.by_distance[0, :, 1, 0].isnan().tolist() == [False, True]
    assert column(scores, "induction", 1) == column(scores, "induction_min", 1) == 1.0
    assert labels_of(scores)["1.0"] == ["prefix-matching"]


def test_bidirectional_attention_sees_all_keys():
    model = single_head_model("uniform", 40, 30)
    encoder = HookedTransformer(model.cfg.replace(causal=False))
    encoder.load_state_dict(model.state_dict())
    scores = head_scores(
        encoder, torch.arange(20)[None].expand(2, -1), attention_mask=(torch.arange(20) < 15)[None].expand(2, -1)
    )
    assert column(scores, "entropy") == pytest.approx(math.log(15))
    assert math.isnan(column(scores, "copying_effect"))
    assert head_scores(encoder, distances=(5, 7)).loss_second_half is None


# Invariances ------------------------------------------------------------------------------------------------------------


def test_precision_does_not_matter():
    single, double = random_model(), random_model().double()
    assert_same(head_scores(double, distances=(8, 20)), head_scores(single, distances=(8, 20)), atol=1e-4)
    half = head_scores(random_model().bfloat16(), distances=(8, 20))
    assert half.entropy.dtype == torch.float32 and half.logits_from == "scores"
    torch.testing.assert_close(half.entropy, head_scores(single, distances=(8, 20)).entropy, atol=0.05, rtol=0.02)


def test_token_ids_are_only_names():
    """The circuit works on any tokens: another draw, the same scores."""
    model = induction_model(60, 101)
    a, b = head_scores(model, seed=0), head_scores(model, seed=1)
    assert_same(a, b, but=("copying_effect_error", "linearity_error"))


def test_an_unused_head_changes_no_other():
    plain, more = head_scores(induction_model(41, 81)), head_scores(induction_model(41, 81, extra_heads=2))
    for name in COLUMNS:
        torch.testing.assert_close(getattr(more, name)[:, :1], getattr(plain, name), equal_nan=True)
    assert labels_of(more) == labels_of(plain)


def test_the_model_is_left_as_it_was():
    model = random_model()
    tokens = repeated_tokens(40, 10, 2, bos_token_id=0)
    before = {name: tensor.clone() for name, tensor in model.run_with_cache(tokens)[1].items()}
    seen: list[str] = []
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_pattern", lambda pattern, hook: seen.append(hook.name))]):
        head_scores(model, tokens)
        assert seen
    assert not any(point.is_hooked for point in map(model.hook_point, model.hook_names))
    after = model.run_with_cache(tokens)[1]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_no_hook_stays_after_an_exception():
    model = random_model()
    with pytest.raises(RuntimeError, match="stop"), model.hooks(fwd_hooks=[("blocks.1.hook_resid_post", fail)]):
        head_scores(model)
    assert not any(point.is_hooked for point in map(model.hook_point, model.hook_names))


def fail(tensor, hook):
    raise RuntimeError("stop")


def test_the_same_seed_gives_the_same_result():
    model = random_model()
    torch.manual_seed(1)
    first = head_scores(model, seed=3).to_dict()
    torch.manual_seed(2)
    assert head_scores(model, seed=3).to_dict() == first
    assert not torch.equal(head_scores(model, seed=4).entropy, head_scores(model, seed=3).entropy)
