"""Kernel weights and the other normalisers as formulas: against float64 by hand, at their limits, and where they refuse."""

from __future__ import annotations

import warnings

import pytest
import torch

from models import ConfigError, InputError
from models.kernels import kernel_functions, normalisers
from models.kernels.kernel_functions import KERNELS, Kernel, KernelWarning, as_kernel, kernel_pattern, register_kernel

HIDDEN = float("-inf")


def scores(seed: int = 0, spread: float = 1.0, positive: bool = False) -> torch.Tensor:
    """Causal scores [2, 3, 5, 5] in float64."""
    raw = spread * torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (raw.abs() + 0.1 if positive else raw).masked_fill(torch.ones(5, 5).triu(1).bool(), HIDDEN)


def test_the_exponential_kernel_is_the_softmax_however_large_the_scores() -> None:
    for spread in (1.0, 1e4):
        assert torch.allclose(
            kernel_pattern(scores(spread=spread), KERNELS["exp"]), scores(spread=spread).softmax(-1), atol=1e-14
        )
    assert KERNELS["exp"].scale(16) == 0.25 and KERNELS["identity"].scale(16) == 1.0


def test_the_identity_kernel_divides_scores_by_their_sum() -> None:
    given = scores(positive=True)
    wanted = given.masked_fill(given == HIDDEN, 0.0)
    assert torch.allclose(kernel_pattern(given, KERNELS["identity"]), wanted / wanted.sum(-1, keepdim=True))


def test_weight_and_its_logarithm_agree() -> None:
    given = scores()
    plain = kernel_pattern(given, Kernel(weight=lambda x: 1 / (1 + x**2)))
    assert torch.allclose(plain, kernel_pattern(given, Kernel(log_weight=lambda x: -torch.log(1 + x**2))))
    assert torch.allclose(plain.sum(-1), torch.ones((), dtype=torch.float64))


def test_rows_without_keys_are_zero_and_no_error_forward_and_backward() -> None:
    given = scores(positive=True)
    given[0, :, 2] = HIDDEN
    given.requires_grad_()
    for kernel in (KERNELS["exp"], KERNELS["identity"]):
        pattern = kernel_pattern(given, kernel)
        assert pattern[0, :, 2].abs().max() == 0
        (gradient,) = torch.autograd.grad(pattern.square().sum(), given)
        assert gradient.isfinite().all() and gradient.abs().max() > 0


def test_rows_whose_sum_is_not_positive_are_refused_or_reported() -> None:
    given = scores(positive=True)
    given[1, 2, 4] = torch.tensor([1.0, -1.0, 1.0, -1.0, -2.0])
    given[1, 2, 1, :2] = torch.tensor([3.0, -3.0])
    with pytest.raises(InputError, match=r"2 of 30 rows.*batch 1, head 2, query 1, sums to 0"):
        kernel_pattern(given, KERNELS["identity"])
    with pytest.warns(KernelWarning, match="2 of 30 rows"):
        pattern = kernel_pattern(given, KERNELS["identity"], "report")
    assert torch.allclose(pattern[1, 2, 4], torch.tensor([-0.5, 0.5, -0.5, 0.5, 1.0], dtype=torch.float64))
    assert pattern[1, 2, 1].abs().max() == 0
    given[0, 0, 0, 0] = torch.nan
    with pytest.raises(InputError, match=r"3 of 30 rows.*batch 0, head 0, query 0, sums to nan"):
        kernel_pattern(given, KERNELS["identity"])
    with pytest.raises(InputError, match="sums to inf"):
        kernel_pattern(scores(spread=1e5, positive=True), Kernel(weight=torch.exp))
    with pytest.raises(InputError, match="not positive"):
        kernel_pattern(scores(), Kernel(log_weight=lambda x: torch.full_like(x, HIDDEN)))


def test_good_rows_raise_nothing_in_either_mode() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel_pattern(scores(), KERNELS["exp"], "report")


def test_half_precision_is_widened() -> None:
    given = scores(spread=30.0)
    assert kernel_pattern(given.half(), KERNELS["exp"]).dtype == torch.float16
    wanted = kernel_pattern(given.half().double(), KERNELS["exp"])
    assert (kernel_pattern(given.half(), KERNELS["exp"]).double() - wanted).abs().max() < 5e-4


def test_users_kernels_by_name_and_by_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_functions, "KERNELS", dict(KERNELS))
    register_kernel("square", torch.square)
    assert torch.equal(kernel_pattern(scores(), as_kernel("square")), kernel_pattern(scores(), as_kernel(torch.square)))
    with pytest.raises(ConfigError, match="'square' exists already"):
        register_kernel("square", torch.square)
    with pytest.raises(ConfigError, match=r"'sqare' is not known.*'square'"):
        as_kernel("sqare")
    with pytest.raises(ConfigError, match="exactly one of weight and log_weight"):
        Kernel()
    with pytest.raises(ConfigError, match="must be elementwise"):
        kernel_pattern(scores(), Kernel(weight=lambda x: x.sum(-1)))


def test_sigmoid_weights() -> None:
    given = scores()
    pattern = normalisers.sigmoid_pattern(given)
    for query in range(5):
        wanted = 1 / (1 + (query + 1) * torch.exp(-given[:, :, query, : query + 1]))
        assert torch.allclose(pattern[:, :, query, : query + 1], wanted)
    assert pattern[given == HIDDEN].abs().max() == 0
    assert torch.allclose(normalisers.sigmoid_pattern(given, -2.0)[..., 0], torch.sigmoid(given[..., 0] - 2.0))
    empty = torch.full((1, 1, 2, 3), HIDDEN)
    assert normalisers.sigmoid_pattern(empty).abs().max() == 0


def test_mixed_heads_are_weighted_sums() -> None:
    maps, weight = scores(positive=True).nan_to_num(neginf=0.0), torch.randn(4, 3, dtype=torch.float64)
    mixed = normalisers.mix_heads(maps, weight)
    assert mixed.shape == (2, 4, 5, 5)
    assert torch.allclose(mixed[:, 1], sum(weight[1, head] * maps[:, head] for head in range(3)))


def test_differential_rows_sum_to_one_less_lambda() -> None:
    maps = torch.cat((scores(1), scores(2)), 1).softmax(-1)
    pattern = normalisers.differential_pattern(maps, torch.tensor(0.3, dtype=torch.float64))
    assert torch.allclose(pattern, maps[:, :3] - 0.3 * maps[:, 3:])
    assert torch.allclose(pattern.sum(-1), torch.full((), 0.7, dtype=torch.float64))
    assert normalisers.lambda_start(0) == pytest.approx(0.2) and normalisers.lambda_start(100) == pytest.approx(0.8)
