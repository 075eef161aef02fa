"""Disentangled attention (He et al. 2021, DeBERTa, arXiv 2006.03654): scores between contents and relative positions.

With r(i, j) the row of a table of relative positions that belongs to query i and key j, a score is the sum of

    c2c  q_i . k_j              content to content
    c2p  q_i . pos_k[r(i, j)]   content to position
    p2c  k_j . pos_q[r(i, j)]   position to content

all scaled by 1 / sqrt(d_head * number of terms). Distances here are query minus key, in tokens.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

Index = Int[Tensor, "#batch query key"]


def log_bucket(distance: Int[Tensor, "*shape"], n_buckets: int, max_distance: int) -> Int[Tensor, "*shape"]:
    """Signed buckets of signed distances: exact up to n_buckets / 2, logarithmic up to max_distance - 1 (DeBERTa v2).

    n_buckets: buckets to either side; must be at least 2 and even. The last one is reached at max_distance - 1 tokens.
    """
    exact = n_buckets // 2
    beyond = distance.abs().clamp(min=exact).double()
    steps = torch.log(beyond / exact) / math.log((max_distance - 1) / exact) * (exact - 1)
    far = (torch.ceil(steps) + exact).to(distance.dtype) * distance.sign()
    return torch.where(distance.abs() <= exact, distance, far)


def relative_rows(
    queries: Int[Tensor, "#batch query"], keys: Int[Tensor, "#batch key"], n_buckets: int, max_distance: int
) -> Index:
    """r(i, j): for each query and key position, its row in a table of 2 * span relative positions.

    n_buckets: 0 gives every distance its own row (DeBERTa v1) and span = max_distance; else span = n_buckets.
    Row span is distance 0; distances beyond the table share its first or last row.
    """
    distance = queries[:, :, None] - keys[:, None, :]
    span = n_buckets or max_distance
    if n_buckets:
        distance = log_bucket(distance, n_buckets, max_distance)
    return (distance + span).clamp(0, 2 * span - 1)


def content_to_position(
    q: Float[Tensor, "batch query head d_head"], pos_k: Float[Tensor, "row head d_head"], rows: Index
) -> Float[Tensor, "batch head query key"]:
    """q_i . pos_k[r(i, j)], unscaled."""
    every_row = torch.einsum("bqhd,rhd->bhqr", q, pos_k)
    return every_row.gather(-1, rows[:, None].expand(*every_row.shape[:3], -1))


def position_to_content(
    k: Float[Tensor, "batch key head d_head"], pos_q: Float[Tensor, "row head d_head"], rows: Index
) -> Float[Tensor, "batch head query key"]:
    """k_j . pos_q[r(i, j)], unscaled."""
    every_row = torch.einsum("bkhd,rhd->bhkr", k, pos_q)
    by_key = rows.transpose(1, 2)[:, None]
    return every_row.gather(-1, by_key.expand(*every_row.shape[:3], -1)).transpose(2, 3)
