"""BigBird's block-sparse pattern (Zaheer et al. 2020, arXiv 2007.14062): how often each block of keys enters a block's softmax.

The first and last block see, and are seen by, everything; the others see their neighbours and some random blocks besides.
Blocks are made of token positions, so padding moves none of them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def is_block_sparse(n_tokens: int, block: int, n_random: int) -> bool:
    """Whether a sequence is long enough for blocks to be left out; shorter ones get full attention."""
    return n_tokens > (5 + 2 * n_random) * block


@lru_cache(maxsize=64)
def block_counts(n_blocks: int, n_heads: int, n_random: int, seed: int | None) -> Int[Tensor, "#head block block"]:
    """How often each key block (last axis) enters the softmax of each query block; 0 where it is not seen.

    seed: None is evaluation, where every random block is block 0, which so counts 1 + n_random times; a number draws
        random blocks, other ones for each head, as in training.
    """
    heads = 1 if seed is None else n_heads
    counts = torch.zeros(heads, n_blocks, n_blocks, dtype=torch.long)
    rows = torch.arange(n_blocks)
    counts[:, (rows[:, None] - rows[None]).abs() <= 1] = 1
    counts[:, :, [0, -1]] = 1
    counts[:, [0, -1]] = 1
    inner = counts[:, 1:-1]
    chosen = torch.zeros(heads, n_blocks - 2, n_random, dtype=torch.long)
    if seed is not None:
        chosen = torch.from_numpy(random_blocks(n_blocks, n_heads, n_random, seed))
    inner.scatter_add_(2, chosen, torch.ones_like(chosen))
    return counts


def random_blocks(n_blocks: int, n_heads: int, n_random: int, seed: int) -> np.ndarray:
    """The random key blocks of every head and query block but the first and last, [head, n_blocks - 2, n_random].

    They lie among the first 2 * n_random + 5 blocks, never next to the query's own, and are drawn in the order in which the
    published code draws them, so that one seed gives one pattern everywhere.
    """
    reach, draw = 2 * n_random + 5, np.random.RandomState(seed)
    chosen = np.zeros((n_heads, n_blocks - 2, n_random), dtype=np.int64)
    for row in range(1, n_blocks - 1):
        for head in range(n_heads):
            order = draw.permutation(np.arange(reach, dtype=np.int32))
            chosen[head, row - 1] = [block for block in order if block not in _excluded(row, reach)][:n_random]
    return chosen


def _excluded(row: int, reach: int) -> set[int]:
    """Blocks that a query block sees anyway, and the pair at opposite ends that the published code leaves out."""
    seen = {row - 1, row, row + 1, 0, reach - 1}
    return seen | ({reach - 2} if row == 1 else set()) | ({1} if row == reach - 2 else set())
