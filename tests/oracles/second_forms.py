"""Variants that Hugging Face has no class for: their formula, written out per query in float64, beside what the model does.

Queries, keys and values are those that the model's hooks show; what is compared is z (or pattern @ v, where steps follow) of
every layer and head, on the fused or recurrent path, which is not the one that the hooks of scores and pattern would run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.models.variants import tiny_model, tiny_tokens

LENGTH = 11
Cache = Any
Formula = Callable[[Any, Cache, int, int, int], Tensor]
"""(model, cache, layer, head, query) -> what that head finds at that query."""


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query's softmax attention to the keys given; 0 where there is none."""
    return (q @ k.T * q.shape[-1] ** -0.5).softmax(-1) @ v if len(k) else torch.zeros_like(v[:1].sum(0))


def block_means(x: Tensor, size: int, n: int) -> Tensor:
    return torch.stack([x[block * size : (block + 1) * size].mean(0) for block in range(n)]) if n else x[:0]


def heads(model: Any, cache: Cache, layer: int, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one query head of one row, as the scores see them."""
    group = model.cfg.for_layer(layer).group_size
    q, k = (cache[name, layer] if (name, layer) in cache else cache[name[4:], layer] for name in ("rot_q", "rot_k"))
    return q[0, :, head], k[0, :, head // group], cache["v", layer][0, :, head // group]


def sigmoid(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Ramapuram et al. 2024, equation 3, with the bias -log(number of visible keys)."""
    q, k, v = heads(model, cache, layer, head)
    scores = k[: query + 1] @ q[query] * 8**-0.5
    return torch.sigmoid(scores - torch.tensor(query + 1.0).double().log()) @ v[: query + 1]


def talking_heads(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Shazeer et al. 2020: scores mixed over heads, softmax, weights mixed over heads."""
    attn, seen = model.blocks[layer].attn, query + 1
    rows = [heads(model, cache, layer, each) for each in range(4)]
    scores = torch.stack([k[:seen] @ q[query] * 8**-0.5 for q, k, _ in rows])
    weights = (attn.mix_scores @ scores).softmax(-1)
    return (attn.normaliser.weight[head] @ weights) @ rows[head][2][:seen]


def products(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Products of positive features over their sum. `rot_q` and `rot_k` show the features."""
    q, k, v = heads(model, cache, layer, head)
    weights = k[: query + 1] @ q[query]
    return weights @ v[: query + 1] / weights.sum()


def exponential(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    q, k, v = heads(model, cache, layer, head)
    return attend(q[query], k[: query + 1], v[: query + 1])


def katharopoulos(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Katharopoulos et al. 2020, equation 9, with phi(x) = elu(x) + 1 of the hooked queries and keys."""
    q, k = (F.elu(cache[name, layer][0]) + 1 for name in ("q", "k"))
    group = model.cfg.group_size
    weights = k[: query + 1, head // group] @ q[query, head]
    return weights @ cache["v", layer][0, : query + 1, head // group] / weights.sum()


def retention(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Sun et al. 2023, equation 5: products decay by 1 - 2^(-5 - head) a token."""
    q, k, v = heads(model, cache, layer, head)
    ages = torch.arange(query, -1, -1, dtype=torch.float64)
    weights = (k[: query + 1] @ q[query]) * 8**-0.5 * (1 - 2.0 ** (-5 - head)) ** ages
    return weights @ v[: query + 1]


def sink_window(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Xiao et al. 2023: the first tokens and the latest."""
    q, k, v = heads(model, cache, layer, head)
    cfg = model.cfg
    seen = [key for key in range(query + 1) if key < cfg.sparse.n_sinks or key > query - cfg.window]
    return attend(q[query], k[seen], v[seen])


def block_mixture(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Lu et al. 2025 (MoBA): the query's own block and those of the past whose mean key it scores highest."""
    q, k, v = heads(model, cache, layer, head)
    size, own = model.cfg.sparse.block, query // model.cfg.sparse.block
    past = block_means(k, size, own) @ q[query] if own else k.new_zeros(0)
    best = past.topk(min(model.cfg.sparse.n_selected - 1, own)).indices.tolist()
    seen = [key for key in range(query + 1) if key // size in (*best, own)]
    return attend(q[query], k[seen], v[seen])


def native_sparse(model: Any, cache: Cache, layer: int, head: int, query: int) -> Tensor:
    """Yuan et al. 2025 (NSA), equations 5 to 12."""
    return native_sparse_parts(model, cache, layer, head, query)[0]


def native_sparse_parts(model: Any, cache: Cache, layer: int, head: int, query: int) -> tuple[Tensor, list[int]]:
    """z of one head and query, and the keys of the blocks that it selects."""
    sparse, kv = model.cfg.sparse, head // 2
    q, k, v = (cache[name, layer][0] for name in ("rot_q", "rot_k", "v"))
    n_whole, own, size = (query + 1) // sparse.block, query // sparse.block, sparse.block
    keys, values = k[: query + 1, kv], v[: query + 1, kv]
    mean_k, mean_v = block_means(keys, size, n_whole), block_means(values, size, n_whole)
    weight = torch.zeros(own + 1, dtype=torch.float64)
    for each in (2 * kv, 2 * kv + 1):
        weight[:n_whole] += (mean_k @ q[query, each] * 8**-0.5).softmax(-1)
    for always in {0, own, max(own - 1, 0)}:
        weight[always] = 9.0
    blocks = weight.topk(min(sparse.n_selected, own + 1)).indices.tolist()
    chosen = [key for key in range(query + 1) if key // size in blocks]
    parts = (
        attend(q[query, head], mean_k, mean_v),
        attend(q[query, head], keys[chosen], values[chosen]),
        attend(q[query, head], keys[-sparse.window :], values[-sparse.window :]),
    )
    x = cache["normalized", layer, "ln1"][0, query]
    gates = (model.blocks[layer].attn.gate.weight.view(4, 3, -1)[head] @ x).sigmoid()
    return gates @ torch.stack(parts), chosen


@dataclass(frozen=True)
class SecondForm:
    """A variant of `VARIANTS`, what it is compared with, and that formula."""

    variant: str
    other: str
    formula: Formula

    @torch.no_grad()
    def error(self) -> float:
        """The largest difference over the largest entry."""
        model, tokens = tiny_model(self.variant, dtype=torch.float64), tiny_tokens(batch=1, length=LENGTH)
        cache = model.run_with_cache(tokens, names="*")[1]
        after = "mixed" if ("mixed", 0) in cache else "z"
        found = model.run_with_cache(tokens, names=f"blocks.*.attn.hook_{after}")[1]
        worst = 0.0
        for layer in range(model.n_layers):
            got = found[after, layer][0]
            rows = [[self.formula(model, cache, layer, head, query) for head in range(4)] for query in range(LENGTH)]
            wanted = torch.stack([torch.stack(row) for row in rows])
            worst = max(worst, float((got - wanted).abs().max() / wanted.abs().max()))
        return worst


SECOND_FORMS: tuple[SecondForm, ...] = (
    SecondForm("katharopoulos", "its definition, query by query (here: the recurrence)", katharopoulos),
    SecondForm("retention_plain", "the sum of decayed products (here: the recurrence)", retention),
    SecondForm("kernel_sum", "products of elu(x) + 1 over their sum", products),
    SecondForm("kernel_exp", "the softmax", exponential),
    SecondForm("sigmoid", "its definition, query by query", sigmoid),
    SecondForm("talking_heads", "its definition, query by query", talking_heads),
    SecondForm("sink_window", "softmax over the listed keys", sink_window),
    SecondForm("block_mixture", "a loop over blocks (here: one masked kernel)", block_mixture),
    SecondForm("native_sparse", "a loop over blocks and branches (here: three kernels)", native_sparse),
)
