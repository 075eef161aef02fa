"""A linear map, or one through a narrow middle."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def low_rank(d_in: int, d_out: int, rank: int) -> nn.Module:
    """d_in to d_out without bias, through `rank` dimensions where that is not 0."""
    if not rank:
        return nn.Linear(d_in, d_out, bias=False)
    return nn.Sequential(
        OrderedDict(down=nn.Linear(d_in, rank, bias=False), up=nn.Linear(rank, d_out, bias=False)),
    )
