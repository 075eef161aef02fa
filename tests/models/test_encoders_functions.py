"""The pure functions of encoders against plain loops, and against the published code where it has the same function."""

from __future__ import annotations

import math

import pytest
import torch

from models.kernels import banded, block_sparse
from models.positions.disentangled import content_to_position, log_bucket, position_to_content, relative_rows


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("n_buckets, max_distance", [(256, 512), (8, 64), (4, 16), (6, 12), (2, 9), (32, 128)])
def test_log_buckets(n_buckets, max_distance):
    distance = torch.arange(-600, 601)
    buckets = log_bucket(distance, n_buckets, max_distance)
    exact = distance.abs() <= n_buckets // 2
    assert torch.equal(buckets[exact], distance[exact])
    assert torch.equal(buckets, -buckets.flip(0)), "buckets of a distance and of its opposite are opposite"
    assert (buckets.diff() >= 0).all()
    assert buckets[distance == max_distance - 1] == n_buckets - 1
    modeling = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    assert torch.equal(buckets, modeling.make_log_bucket_position(distance, n_buckets, max_distance).long())


def test_known_log_buckets():
    assert log_bucket(torch.tensor([0, 128, -128, 300, -511]), 256, 512).tolist() == [0, 128, -128, 207, -255]


@pytest.mark.parametrize("n_buckets, max_distance", [(0, 4), (4, 16)])
def test_position_scores(n_buckets, max_distance):
    """Every score against the dot product it stands for, with positions that differ between rows."""
    n, span = 9, n_buckets or max_distance
    positions = torch.stack((torch.arange(n), torch.arange(n).sub(3).clamp(min=0)))
    rows = relative_rows(positions, positions, n_buckets, max_distance)
    q, k = randn(2, n, 3, 5), randn(2, n, 3, 5, seed=1)
    pos_k, pos_q = randn(2 * span, 3, 5, seed=2), randn(2 * span, 3, 5, seed=3)
    c2p, p2c = content_to_position(q, pos_k, rows), position_to_content(k, pos_q, rows)
    for batch in range(2):
        for i in range(n):
            for j in range(n):
                distance = positions[batch, i] - positions[batch, j]
                bucket = log_bucket(distance, n_buckets, max_distance) if n_buckets else distance
                row = min(max(int(bucket) + span, 0), 2 * span - 1)
                assert rows[batch, i, j] == row
                for head in range(3):
                    assert abs(c2p[batch, head, i, j] - q[batch, i, head] @ pos_k[row, head]) < 1e-12
                    assert abs(p2c[batch, head, i, j] - k[batch, j, head] @ pos_q[row, head]) < 1e-12


@pytest.mark.parametrize(
    "n, reach, global_at", [(13, 2, ()), (13, 2, (0, 7)), (8, 4, (3,)), (5, 9, (1,)), (7, 0, (2,)), (12, 3, (11,))]
)
def test_banded_attention_is_dense_attention_under_its_mask(n, reach, global_at):
    q, k, v = (randn(2, n, 3, 4, seed=seed) for seed in range(3))
    shared = torch.zeros(2, n, dtype=torch.bool)
    shared[0, list(global_at)] = True
    local = ~shared
    local[1, :2] = False
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() <= reach
    visible = (near & local[:, None]) | shared[:, None]
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.7
    pattern = scores.masked_fill(~visible[:, None], -math.inf).softmax(-1).nan_to_num(0.0)
    wanted = torch.einsum("bhqk,bkhd->bqhd", pattern, v)
    assert (banded.attend(q, k, v, reach, 0.7, local, shared) - wanted).abs().max() < 1e-12


def test_banded_attention_has_gradients_where_a_query_sees_nothing():
    q, k, v = (randn(1, 6, 1, 2, seed=seed).requires_grad_() for seed in range(3))
    local = torch.tensor([[True, False, False, False, False, True]])
    z = banded.attend(q, k, v, 1, 1.0, local, torch.zeros_like(local))
    assert (z[0, 2:4] == 0).all()
    z.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_block_counts_of_evaluation():
    """Middle blocks count block 0 once for being global and once for every random block."""
    counts = block_sparse.block_counts(8, 3, 2, None)
    assert counts.shape == (1, 8, 8)
    assert counts[0, 0].tolist() == counts[0, 7].tolist() == [1] * 8
    assert counts[0, 1].tolist() == [3, 1, 1, 0, 0, 0, 0, 1]
    assert counts[0, 4].tolist() == [3, 0, 0, 1, 1, 1, 0, 1]
    assert counts[0, 6].tolist() == [3, 0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("n_blocks, n_heads, n_random, seed", [(14, 3, 2, 0), (12, 2, 3, 5), (9, 1, 1, 1)])
def test_random_blocks_are_those_of_the_published_code(n_blocks, n_heads, n_random, seed):
    modeling = pytest.importorskip("transformers.models.big_bird.modeling_big_bird")
    config = modeling.BigBirdConfig(hidden_size=12, num_attention_heads=n_heads, num_random_blocks=n_random, block_size=2)
    theirs = modeling.BigBirdBlockSparseAttention(config, seed).train()
    lengths, numbers = theirs._get_rand_attn_plan(n_blocks * 2, 2, n_random)
    import numpy as np

    state = np.random.get_state()
    try:
        np.random.seed(seed)
        wanted = theirs._bigbird_block_rand_mask_with_head(n_blocks * 2, n_blocks * 2, 2, 2, n_heads, lengths, numbers)
    finally:
        np.random.set_state(state)
    assert np.array_equal(block_sparse.random_blocks(n_blocks, n_heads, n_random, seed), np.stack(wanted))
    counts = block_sparse.block_counts(n_blocks, n_heads, n_random, seed)
    assert counts.shape[0] == n_heads and counts.max() == 1
    assert (counts[:, 2:-2].sum(-1) == 5 + n_random).all()


def test_short_sequences_are_not_sparse():
    assert not block_sparse.is_block_sparse(9 * 64, 64, 2) and block_sparse.is_block_sparse(9 * 64 + 1, 64, 2)
