"""Linear attention with a feature map (Katharopoulos et al. 2020, arXiv 2006.16236): a kernel in place of exp(q . k).

    y_i = sum_{j <= i} phi(q_i) . phi(k_j) v_j / sum_{j <= i} phi(q_i) . phi(k_j),      phi(x) = elu(x) + 1

Features are positive, so each row of M is a distribution over keys. The functions take the features, `features(q)` and
`features(k)`; a key whose features are all 0 is invisible. The state has one more column than the values: the sum of the keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ...norms import widened
from . import gated
from .parts import Keys, Matrix, Values, heads_first

WithSum = Float[Tensor, "batch pos head d_value_and_one"]
SumState = Float[Tensor, "batch head d_key d_value_and_one"]


def features(x: Keys) -> Keys:
    """elu(x) + 1: positive, the identity plus one where x > 0."""
    return F.elu(x) + 1


def states(k: Keys, v: Values, state: SumState | None = None) -> Iterator[SumState]:
    """The state after each token, [d_key, d_value + 1]: sums of k v^T and, in the last column, of k."""
    return gated.states(k, _with_ones(v), _no_decay(k), None, state)


def recurrent(q: Keys, k: Keys, v: Values, state: SumState | None = None) -> tuple[Values, SumState]:
    """(y, state after the last token), one token after the other; state: what earlier tokens left."""
    y, state = gated.recurrent(q, k, _with_ones(v), _no_decay(k), None, state)
    return _divided(y).to(v.dtype), state


def chunked(q: Keys, k: Keys, v: Values, state: SumState | None = None, chunk: int | None = None) -> tuple[Values, SumState]:
    """As `recurrent`, in matrix products: work and memory grow linearly with the length."""
    y, state = gated.chunked(q, k, _with_ones(v), _no_decay(k), None, state, chunk)
    return _divided(y).to(v.dtype), state


def quadratic(q: Keys, k: Keys, v: Values, state: SumState | None = None) -> tuple[Values, SumState]:
    """As `recurrent`, through all products of queries and keys."""
    y, state = gated.quadratic(q, k, _with_ones(v), _no_decay(k), None, state)
    return _divided(y).to(v.dtype), state


def implicit_matrix(q: Keys, k: Keys) -> Matrix:
    """M with y = M v when there is no earlier state: rows add up to 1, 0 above the diagonal; a row that sees no key is 0."""
    products = torch.tril(heads_first(q) @ heads_first(k).mT)
    return products / _nonzero(products.sum(-1, keepdim=True))


def log_products(q: Keys, k: Keys) -> Matrix:
    """log of phi(q_i) . phi(k_j), -inf above the diagonal and at invisible keys: M is its softmax."""
    products = torch.tril(heads_first(q) @ heads_first(k).mT)
    hidden = products == 0
    return products.masked_fill(hidden, 1.0).log().masked_fill(hidden, float("-inf"))


def read(q: Keys, states: Float[Tensor, "batch pos head d_key d_value_and_one"]) -> Values:
    """What each query makes of a state of its own."""
    return _divided(gated.read(q, states))


def _with_ones(v: Values) -> WithSum:
    v = widened(v)  # in half precision, the sum would be handed back with the precision of the values
    return torch.cat((v, torch.ones_like(v[..., :1])), -1)


def _no_decay(k: Keys) -> Float[Tensor, "batch pos head 1"]:
    return torch.zeros_like(k[..., :1])


def _divided(y: WithSum) -> Values:
    return y[..., :-1] / _nonzero(y[..., -1:])


def _nonzero(total: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return total.masked_fill(total == 0, 1.0)
