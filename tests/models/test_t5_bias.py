"""T5's relative position buckets against the formula in exact arithmetic, and against the reference implementation."""

from __future__ import annotations

import math

import pytest
import torch

from models.positions.t5_bias import relative_buckets


def formula(offset: int, n_buckets: int, max_distance: int, bidirectional: bool) -> int:
    """Raffel et al. 2020: half of the buckets exact, half logarithmic; later keys in the upper half where they are seen."""
    base = 0
    if bidirectional:
        n_buckets //= 2
        base = n_buckets if offset > 0 else 0
        distance = abs(offset)
    else:
        distance = max(-offset, 0)
    exact = n_buckets // 2
    if distance < exact:
        return base + distance
    steps = math.floor(math.log(distance / exact) / math.log(max_distance / exact) * (n_buckets - exact) + 1e-9)
    return base + min(exact + steps, n_buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (6, 10)])
def test_buckets_follow_the_formula(n_buckets, max_distance, bidirectional):
    offsets = torch.arange(-200, 201)
    got = relative_buckets(offsets, n_buckets, max_distance, bidirectional)
    assert got.tolist() == [formula(int(offset), n_buckets, max_distance, bidirectional) for offset in offsets]


def test_known_buckets_of_a_causal_model():
    distances = torch.tensor([0, 1, 15, 16, 17, 18, 19, 127, 128, 5000])
    assert relative_buckets(-distances, 32, 128, False).tolist() == [0, 1, 15, 16, 16, 16, 17, 31, 31, 31]
    assert relative_buckets(torch.tensor([1, 7, 300]), 32, 128, False).tolist() == [0, 0, 0]


def test_both_directions_have_buckets_of_their_own():
    earlier = relative_buckets(-torch.arange(1, 300), 32, 128, True)
    later = relative_buckets(torch.arange(1, 300), 32, 128, True)
    assert torch.equal(later, earlier + 16) and earlier.max() == 15


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_equal_the_reference_implementation(bidirectional):
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    offsets = torch.arange(-3000, 3001)[None]
    for n_buckets, max_distance in ((32, 128), (8, 20), (12, 300)):
        theirs = modeling.T5Attention._relative_position_bucket(offsets, bidirectional, n_buckets, max_distance)
        assert torch.equal(relative_buckets(offsets, n_buckets, max_distance, bidirectional), theirs)
