"""Entropies, logit spreads and distances, against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from interp.heads import metrics


def causal(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def uniform_pattern(length: int) -> torch.Tensor:
    return causal(length) / torch.arange(1.0, length + 1)[:, None]


def random_scores(*shape: int, seed: int = 0) -> torch.Tensor:
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(~causal(shape[-1]), -math.inf)


def test_uniform_causal_head():
    pattern, visible = uniform_pattern(64), causal(64)
    n_keys = visible.sum(-1)
    entropy = metrics.entropy(pattern)
    torch.testing.assert_close(entropy, torch.arange(1.0, 65).log())
    assert float(entropy.mean()) == pytest.approx(math.lgamma(65) / 64, abs=1e-5) == pytest.approx(3.20575, abs=1e-5)
    normalized = metrics.normalized_entropy(pattern, n_keys)
    assert normalized[0].isnan() and torch.allclose(normalized[1:], torch.ones(63))
    torch.testing.assert_close(metrics.effective_tokens(pattern), torch.arange(1.0, 65))
    scores = torch.zeros(64, 64).masked_fill(~visible, -math.inf)
    std = metrics.logit_std(scores, visible)
    assert torch.equal(std, torch.zeros(64)) and bool(metrics.temperature(std).isinf().all())
    assert float(metrics.uniformity_error(pattern, visible).max()) < 1e-6
    assert float(metrics.linearity_error(scores, visible).max()) < 1e-6


@pytest.mark.parametrize("order, tokens", [(1.0, 2.82843), (2.0, 2.66667), (math.inf, 2.0), (0.0, 3.0), (1.0001, 2.82843)])
def test_effective_tokens_of_a_known_row(order: float, tokens: float):
    p = torch.tensor([0.5, 0.25, 0.25, 0.0])
    assert float(metrics.entropy(p)) == pytest.approx(1.03972, abs=1e-5)
    assert float(metrics.effective_tokens(p.double(), order)) == pytest.approx(tokens, abs=1e-4)


def test_effective_tokens_fall_with_the_order():
    p = random_scores(1, 20, 20).softmax(-1)[0, 1:]
    values = torch.stack([metrics.effective_tokens(p, order) for order in (0.0, 0.5, 1.0, 2.0, 5.0, math.inf)])
    assert bool((values.diff(dim=0) <= 1e-5).all())


def test_two_keys():
    scores, visible = torch.tensor([0.0, math.log(3)]), torch.ones(2, dtype=torch.bool)
    torch.testing.assert_close(scores.softmax(-1), torch.tensor([0.25, 0.75]))
    std = metrics.logit_std(scores, visible)
    assert float(std) == pytest.approx(0.549306, abs=1e-6)
    assert float(metrics.temperature(std)) == pytest.approx(1.820478, abs=1e-5)


def test_adding_a_constant_to_a_row_changes_nothing():
    scores, visible = random_scores(12, 12).double(), causal(12)
    for function in (metrics.logit_std, metrics.linearity_error):
        torch.testing.assert_close(function(scores + 37.5, visible), function(scores, visible))


def test_softmax_at_the_temperature_of_standardised_scores_gives_the_pattern_back():
    scores, visible = random_scores(12, 12).double() * 3, causal(12)
    std = metrics.logit_std(scores, visible)[1:, None]
    standardised = metrics.centred_scores(scores, visible)[1:] / std
    again = (standardised / metrics.temperature(std)).masked_fill(~visible[1:], -math.inf).softmax(-1)
    torch.testing.assert_close(again, scores.softmax(-1)[1:], atol=1e-6, rtol=0)


def test_the_least_entropy_at_a_given_norm():
    n, norm = 8, 4.0
    bound = metrics.entropy_lower_bound(norm, n)
    assert bound == pytest.approx(0.471895, abs=1e-6)
    extremal = torch.full((n,), -norm / math.sqrt(n * (n - 1)), dtype=torch.float64)
    extremal[0] = norm * math.sqrt((n - 1) / n)
    assert float(extremal.norm()) == pytest.approx(norm)
    assert float(metrics.entropy(extremal.softmax(-1))) == pytest.approx(bound, abs=1e-9)
    rows = torch.randn(2000, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = rows / rows.norm(dim=-1, keepdim=True) * norm
    assert float(metrics.entropy(rows.softmax(-1)).min()) >= bound
    assert metrics.entropy_lower_bound(norm, 1) == 0.0


def test_a_sharp_head_is_finite():
    scores = 60.0 * torch.eye(6).roll(-1, dims=1)[1:]
    entropy = metrics.entropy(scores.softmax(-1))
    assert bool(entropy.isfinite().all()) and float(entropy.abs().max()) < 1e-6
    assert float(metrics.entropy(torch.tensor([1.0, 0.0, 0.0]))) == 0.0


def test_a_sink_hides_the_rest():
    sink = torch.zeros(5, 5)
    sink[:, 0] = 1.0
    n_keys = causal(5).sum(-1)
    assert torch.equal(metrics.normalized_entropy(sink, n_keys)[1:], torch.zeros(4))
    first = torch.arange(5) == 0
    assert bool(metrics.without_keys(sink, first).isnan().all())
    half = 0.9 * sink + 0.1 * uniform_pattern(5)
    rest = metrics.normalized_entropy(metrics.without_keys(half, first), n_keys - 1)
    assert bool(rest[:2].isnan().all()) and torch.allclose(rest[2:], torch.ones(3))


def test_a_row_without_keys_has_no_entropy():
    pattern = torch.tensor([[0.0, 0.0], [0.5, 0.5]])
    assert metrics.entropy(pattern).isnan().tolist() == [True, False]
    assert metrics.normalized_entropy(pattern, torch.tensor([0, 2])).isnan().tolist() == [True, False]


def test_attention_that_leaves_the_sequence_is_normalised():
    torch.testing.assert_close(metrics.entropy(torch.tensor([0.3, 0.3])), torch.tensor(math.log(2)))


@pytest.mark.parametrize("mask_value", [-math.inf, torch.finfo(torch.float32).min, -65504.0])
def test_masked_scores_are_not_visible(mask_value: float):
    scores = torch.zeros(4, 4).masked_fill(~causal(4), mask_value)
    assert torch.equal(metrics.visible_keys(scores), causal(4))


def test_freezing_ratio():
    n = torch.tensor([1, 2, 512])
    ratio = metrics.freezing_ratio(torch.tensor([1.0, 1.0, 3.0]), n)
    assert ratio[0].isnan()
    assert ratio[1:].tolist() == pytest.approx([1 / math.sqrt(2 * math.log(2)), 3 / math.sqrt(2 * math.log(512))])


def test_gaussian_scores_below_freezing_lose_half_their_variance_in_entropy():
    scores = 0.5 * torch.randn(200, 512, generator=torch.Generator().manual_seed(0))
    assert float(metrics.entropy(scores.softmax(-1)).mean()) == pytest.approx(math.log(512) - 0.125, abs=0.01)


def test_linear_error_is_second_order_and_uniformity_error_first():
    scores, visible = random_scores(40, 40).double()[-1], torch.ones(40, dtype=torch.bool)
    linear = [float(metrics.linearity_error(scale * scores, visible)) for scale in (0.02, 0.01)]
    uniform = [float(metrics.uniformity_error((scale * scores).softmax(-1), visible)) for scale in (0.02, 0.01)]
    assert linear[0] / linear[1] == pytest.approx(4, rel=0.05)
    assert uniform[0] / uniform[1] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("std, linear", [(0.25, 0.015), (0.5, 0.06), (1.0, 0.227)])
def test_linearity_error_of_gaussian_scores(std: float, linear: float):
    scores = std * torch.randn(400, 300, generator=torch.Generator().manual_seed(0))
    visible = torch.ones_like(scores, dtype=torch.bool)
    assert float(metrics.linearity_error(scores, visible).mean()) == pytest.approx(linear, rel=0.05)


def test_linear_attention_sums_to_one_and_keeps_masked_keys_at_zero():
    scores, visible = 2 * random_scores(9, 9), causal(9)
    linear = metrics.linear_attention(scores, visible)
    torch.testing.assert_close(linear.sum(-1), torch.ones(9))
    assert bool((linear[~visible] == 0).all())


def test_static_error():
    positional = uniform_pattern(6).expand(3, 2, 6, 6)
    assert float(metrics.static_error(positional).max()) < 1e-6
    one_hot = torch.eye(3)[:, None]
    torch.testing.assert_close(metrics.static_error(one_hot), torch.ones(3, 1))
    assert bool(metrics.static_error(one_hot[:1]).isnan().all())


def test_half_precision_is_measured_in_float32():
    pattern = uniform_pattern(64).bfloat16()
    entropy = metrics.entropy(pattern)
    assert entropy.dtype == torch.float32
    torch.testing.assert_close(entropy, torch.arange(1.0, 65).log(), atol=1e-4, rtol=0)
