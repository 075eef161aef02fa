"""Latent and selected attention as functions: two formulations that agree, and hand-written loops."""

from __future__ import annotations

import math

import pytest
import torch

from models.kernels import latent, selection

H, QUERIES, KEYS, RANK, D_CONTENT, D_SHARED, D_VALUE = 3, 6, 9, 7, 5, 4, 6


def random_latent(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    queries, keys = (2, QUERIES, H, D_CONTENT + D_SHARED), ((2, KEYS, RANK), (2, KEYS, D_SHARED))
    shapes = (queries, *keys, (H, RANK, D_CONTENT), (H, RANK, D_VALUE))
    return tuple(torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype) for shape in shapes)


def causal_mask() -> torch.Tensor:
    """The last queries of a sequence; one row of the batch is padded so far that its first query sees nothing."""
    mask = torch.arange(KEYS)[None] <= torch.arange(KEYS - QUERIES, KEYS)[:, None]
    real = torch.arange(KEYS) >= torch.tensor([0, 4])[:, None]
    return (mask & real[:, None])[:, None]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("masked", [True, False])
def test_the_absorbed_form_equals_the_naive_one(dtype: torch.dtype, tolerance: float, masked: bool) -> None:
    arguments = *random_latent(dtype), causal_mask() if masked else None, 0.37
    naive, absorbed = latent.naive(*arguments), latent.absorbed(*arguments)
    assert naive.shape == (2, QUERIES, H, D_VALUE) and naive.dtype == absorbed.dtype == dtype
    assert (naive - absorbed).abs().max() < tolerance
    assert not masked or naive[1, 0].abs().max() == absorbed[1, 0].abs().max() == 0


def test_the_naive_form_is_the_formula() -> None:
    q, c, shared, up_k, up_v = random_latent(torch.float64)
    mask, z = causal_mask(), latent.naive(q, c, shared, up_k, up_v, causal_mask(), 0.37)
    for batch, query, head in ((0, 0, 0), (0, 5, 2), (1, 3, 1)):
        seen = [key for key in range(KEYS) if mask[batch, 0, query, key]]
        content, rotary = q[batch, query, head].split([D_CONTENT, D_SHARED])
        scores = [content @ (c[batch, key] @ up_k[head]) + rotary @ shared[batch, key] for key in seen]
        weights = (0.37 * torch.stack(scores)).softmax(0)
        wanted = sum(weight * (c[batch, key] @ up_v[head]) for weight, key in zip(weights, seen, strict=True))
        assert torch.allclose(z[batch, query, head], wanted, atol=1e-13)


def test_score_parts_add_up_and_a_latent_per_head_meets_its_own_weights() -> None:
    q, c, shared, up_k, _ = random_latent(torch.float64)
    k = latent.join_key(latent.expand(c, up_k), shared)
    content, rotary = latent.score_parts(q, k, D_SHARED, 0.37)
    assert torch.allclose(content + rotary, 0.37 * torch.einsum("bqhd,bkhd->bhqk", q, k), atol=1e-13)
    by_head = c[:, :, None] * torch.arange(1.0, H + 1, dtype=c.dtype)[:, None]
    split = latent.join_key(latent.expand(by_head, up_k), shared[:, :, None].expand(-1, -1, H, -1))
    assert torch.allclose(split[..., :D_CONTENT], k[..., :D_CONTENT] * torch.arange(1.0, H + 1)[:, None], atol=1e-13)
    assert torch.equal(split[..., D_CONTENT:], k[..., D_CONTENT:])


def test_indexer_scores_are_weighted_sums_of_rectified_products() -> None:
    draw = torch.Generator().manual_seed(0)
    q, k, weights = (torch.randn(*shape, generator=draw) for shape in ((2, 3, 1, 4, 5), (2, 6, 1, 5), (2, 3, 1, 4)))
    got = selection.indexer_scores(q, k, weights)
    assert got.shape == (2, 1, 3, 6)
    for batch, query, key in ((0, 0, 0), (1, 2, 5), (1, 1, 3)):
        wanted = sum(weights[batch, query, 0, h] * max(q[batch, query, 0, h] @ k[batch, key, 0], 0) for h in range(4))
        assert math.isclose(got[batch, 0, query, key], wanted, abs_tol=1e-5)


def row(*values: float | bool) -> torch.Tensor:
    return torch.tensor(values)[None, None, None]


def test_choosing_takes_the_highest_allowed_and_the_earliest_of_equals() -> None:
    scores, allowed = row(1.0, 5.0, 5.0, 3.0, 5.0, 9.0), row(True, True, True, True, True, False)
    chosen = lambda n, **also: selection.choose(scores, n, allowed, **also)[0, 0, 0].nonzero().flatten().tolist()  # noqa: E731
    assert chosen(2) == [1, 2]
    assert chosen(4) == [1, 2, 3, 4]
    assert chosen(99) == [0, 1, 2, 3, 4]
    assert chosen(2, always=row(True, False, False, False, False, False)) == [0, 1]
    assert chosen(1, always=row(False, False, False, False, False, True)) == [5]
    assert not selection.choose(scores, 3, torch.zeros_like(allowed)).any()


def test_blocks_count_tokens_and_not_padding_and_begin_again_with_positions() -> None:
    positions = torch.tensor([[0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0, 1]])
    real = torch.tensor([[False, False, True, True, True, True, True], [True] * 7])
    blocks = selection.blocks_of(positions, real, 3)
    assert blocks.n == 3
    assert blocks.of.tolist() == [[3, 3, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 2, 2]]
    later = selection.blocks_of(torch.tensor([[7, 8, 9, 10]]), None, 3)
    assert later.of.tolist() == [[0, 0, 1, 1]]


def test_blocks_of_means_and_of_weights_shared_out_agree() -> None:
    positions = torch.tensor([[0, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0, 1]])
    real = torch.tensor([[False, False, True, True, True, True, True], [True] * 7])
    blocks = selection.blocks_of(positions, real, 3)
    draw = torch.Generator().manual_seed(0)
    v = torch.randn(2, 7, 2, 4, generator=draw, dtype=torch.float64)
    mean = blocks.mean(v)
    assert torch.allclose(mean[0, 1], v[0, 5:7].mean(0)) and torch.allclose(mean[1, 2], v[1, 5:7].mean(0))
    pattern = torch.randn(2, 2, 5, 3, generator=draw, dtype=torch.float64)
    pattern[0, :, :, 2] = 0
    spread = blocks.share_out(pattern)
    assert spread[0, :, :, :2].abs().max() == 0
    assert torch.allclose(spread @ v.transpose(1, 2), pattern @ mean.transpose(1, 2), atol=1e-12)


def test_blocks_tell_what_a_query_sees_of_them() -> None:
    blocks = selection.blocks_of(torch.arange(7)[None], None, 3)
    visible = (torch.arange(7)[None] <= torch.arange(3, 7)[:, None])[None, None]
    assert blocks.seen(visible)[0, 0].tolist() == [[3, 1, 0], [3, 2, 0], [3, 3, 0], [3, 3, 1]]
    assert blocks.own(3)[0, 0].int().tolist() == [[0, 1, 0]] * 3 + [[0, 0, 1]]
    chosen = row(True, False, True)
    assert blocks.to_keys(chosen)[0, 0, 0].tolist() == [True] * 3 + [False] * 3 + [True]


def test_a_weighted_selection_multiplies_weights_before_they_are_normalised() -> None:
    scores, weights = row(0.3, -1.0, 2.0), row(1.0, 0.25, 0.5)
    wanted = scores.exp() * weights
    got = selection.weighed(scores, weights).softmax(-1)
    assert torch.allclose(got, wanted / wanted.sum(-1, keepdim=True))
    assert selection.weighed(scores, torch.zeros_like(scores)).isfinite().all()
