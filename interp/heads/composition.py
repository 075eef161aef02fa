"""Do two heads compose? How much of what an earlier head writes is read by a later head's queries, keys or values.

Elhage et al. 2021: ||OV_e X|| / (||OV_e|| ||X||) in Frobenius norm, with X = W_QK for queries, W_QK^T for keys, OV for values of
the later head. The largest possible value is 1 only for rank-1 matrices; an exactly aligned pair of rank r gets 1 / sqrt(r). So a
score is read against the score of random matrices of the same shape, not against 1, and it is support: whether the path is *used*
is for patching to say. Rotary positions are left out, as they make W_QK depend on the distance.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import WeightsError
from ..protocol import model_name
from ..results import Result
from ..run import generator
from .layers import LeftOut, log_left_out
from .weights import HeadWeights, head_weights

Kind = Literal["q", "k", "v"]
PAIR_AXES = ("earlier_layer", "earlier_head", "later_layer", "later_head")


@dataclass(frozen=True)
class Composition:
    """Scores between the heads of an earlier layer and those of a later one, by the reader they enter."""

    q: Float[Tensor, "earlier later"]
    k: Float[Tensor, "earlier later"]
    v: Float[Tensor, "earlier later"]


def composition(earlier: HeadWeights, later: HeadWeights) -> Composition:
    """Composition scores of every pair of heads; NaN where either matrix is zero. Unchanged by scaling either head."""
    left = _triangle(earlier.W_V) @ earlier.W_O
    size = torch.linalg.matrix_norm(left)
    pairs = {"q": (later.W_Q, later.W_K), "k": (later.W_K, later.W_Q), "v": (later.W_V, later.W_O.transpose(1, 2))}
    return Composition(**{kind: _scores(left, size, *factors) for kind, factors in pairs.items()})


def _triangle(factor: Float[Tensor, "head tall narrow"]) -> Float[Tensor, "head rank narrow"]:
    """R of the QR decomposition: stands for the factor wherever only the norm of a product with it matters."""
    return torch.linalg.qr(factor, mode="r").R


def _scores(
    left: Float[Tensor, "earlier rank d_model"],
    left_size: Float[Tensor, " earlier"],
    inner: Float[Tensor, "later d_model d_head"],
    outer: Float[Tensor, "later d_model d_head"],
) -> Float[Tensor, "earlier later"]:
    """||left inner outer^T|| / (||left|| ||inner outer^T||) for all pairs."""
    triangle = _triangle(outer).transpose(1, 2)
    right_size = torch.linalg.matrix_norm(_triangle(inner) @ triangle)
    products = torch.einsum("erd,hdk->ehrk", left, inner) @ triangle
    return torch.linalg.matrix_norm(products) / (left_size[:, None] * right_size)


def random_composition(d_model: int, d_head: int, *, n_heads: int = 16, seed: int = 0) -> float:
    """Mean score of heads with Gaussian weights of these sizes, over n_heads^2 pairs: about 1 / sqrt(d_model)."""
    draws = generator(seed)

    def draw() -> HeadWeights:
        W_Q, W_K, W_V, out = torch.randn(4, n_heads, d_model, d_head, generator=draws)
        return HeadWeights(W_Q, W_K, W_V, out.transpose(1, 2))

    return float(composition(draw(), draw()).k.mean())


@dataclass(frozen=True, repr=False, eq=False)
class CompositionScores(Result):
    """Composition between all pairs of heads of a model; NaN where the earlier head is not in an earlier layer."""

    schema: ClassVar[str] = "composition/2"
    records: ClassVar[dict[str, type]] = {"left_out": LeftOut}
    axes: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys("qkv", PAIR_AXES)

    model: str
    q: Float[Tensor, "layer head layer head"]
    k: Float[Tensor, "layer head layer head"]
    v: Float[Tensor, "layer head layer head"]
    baseline: float
    """Mean score of random heads of the same shape."""
    left_out: tuple[LeftOut, ...] = ()
    """Layers without W_Q, W_K, W_V or W_O, whose scores are NaN."""

    def top(self, kind: Kind, n: int = 10) -> list[tuple[str, str, float]]:
        """The n highest-scoring pairs by one reader: (earlier head, later head, score), heads named "layer.head"."""
        scores = getattr(self, kind)
        flat = scores.nan_to_num(-math.inf).flatten()
        best = flat.topk(min(n, int(scores.isfinite().sum())))
        places = (torch.unravel_index(index, scores.shape) for index in best.indices)
        return [(f"{a}.{b}", f"{c}.{d}", float(value)) for (a, b, c, d), value in zip(places, best.values, strict=True)]


def composition_scores(model: Any, *, seed: int = 0) -> CompositionScores:
    """Composition of every earlier head with every later one, gains folded in, grouped key/value heads expanded.

    Costs about 6 L^2 H^2 d_head^2 d_model operations: ten seconds for 270 heads of width 64. `seed` draws the random baseline.
    Layers that do not show their weights are left out. Raises WeightsError for a model where all are such.
    """
    weights, left_out = _shown_weights(model)
    log_left_out("composition_scores", left_out)
    n_layers, n_heads = model.cfg.n_layers, max(len(each.W_Q) for each in weights.values())
    scores = {kind: torch.full((n_layers, n_heads) * 2, math.nan) for kind in "qkv"}
    for early, late in itertools.combinations(weights, 2):
        pair = composition(weights[early], weights[late])
        for kind, table in scores.items():
            found = getattr(pair, kind).cpu()
            table[early, : found.shape[0], late, : found.shape[1]] = found
    _, d_model, d_head = next(iter(weights.values())).W_Q.shape
    baseline = random_composition(d_model, d_head, seed=seed)
    return CompositionScores(model_name(model), **scores, baseline=baseline, left_out=left_out)


def _shown_weights(model: Any) -> tuple[dict[int, HeadWeights], tuple[LeftOut, ...]]:
    """The weights of every layer that shows them, and the other layers. Raises WeightsError where none does."""
    weights: dict[int, HeadWeights] = {}
    failures: dict[int, WeightsError] = {}
    for layer in range(model.cfg.n_layers):
        try:
            weights[layer] = head_weights(model, layer)
        except WeightsError as error:
            failures[layer] = error
    if not weights:
        raise failures[0]
    return weights, tuple(LeftOut(layer, "composition", str(error)) for layer, error in failures.items())
