"""How sharp or diffuse attention is: entropy, effective tokens, logit spread, distance to uniform, linear and static attention.

Pure functions of patterns [..., query, key] or scores of the same shape; each returns one number per query row and works in
float32 or better whatever it is given. Entropies are in nats. A row without any visible key gives NaN, never 0: it has no
attention to measure. Rows are normalised over their visible keys, so for models with attention sinks outside the sequence
(rows that sum to less than 1) the numbers describe the attention given that it stays inside.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor

from ..precision import widened

# Below every score a model can mean, above every finite value used to mask (the lowest float16 included).
LOWEST_SCORE = torch.finfo(torch.float16).min / 2
TINY_MASS = 1e-6


def visible_keys(scores: Float[Tensor, "*axes query key"]) -> Bool[Tensor, "*axes query key"]:
    """True where a query may attend: scores that are neither -inf nor the lowest number of a float type."""
    return scores > LOWEST_SCORE


def normalised(pattern: Float[Tensor, "*axes key"]) -> Float[Tensor, "*axes key"]:
    """Rows scaled to sum to 1; a row without mass becomes NaN."""
    pattern = widened(pattern)
    return pattern / pattern.sum(-1, keepdim=True)


def entropy(pattern: Float[Tensor, "*axes key"]) -> Float[Tensor, "*axes"]:
    """-sum p ln p in nats, with 0 ln 0 = 0: between 0 (one key) and ln n (uniform over n keys)."""
    return torch.special.entr(normalised(pattern)).sum(-1)


def normalized_entropy(pattern: Float[Tensor, "*axes key"], n_keys: Num[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Entropy over ln n of the row's own n visible keys, in [0, 1]; NaN where n < 2, as one key leaves no choice."""
    return torch.where(n_keys >= 2, entropy(pattern) / n_keys.clamp(min=2).log(), math.nan).clamp(max=1.0)


def without_keys(pattern: Float[Tensor, "*axes key"], dropped: Bool[Tensor, "*#axes key"]) -> Float[Tensor, "*axes key"]:
    """The pattern with some keys taken out and the rest renormalised: what a head looks at besides an attention sink.

    A row that keeps less than 1e-6 of its mass says nothing about the other keys and becomes NaN.
    """
    rest = normalised(pattern).masked_fill(dropped, 0.0)
    mass = rest.sum(-1, keepdim=True)
    return torch.where(mass < TINY_MASS, math.nan, rest / mass)


def effective_tokens(pattern: Float[Tensor, "*axes key"], order: float = 1.0) -> Float[Tensor, "*axes"]:
    """Renyi effective number of keys, in [1, n], falling with the order (Hill 1973).

    order 1: exp(entropy); 2: 1 / sum p^2; inf: 1 / max p; otherwise (sum p^order)^(1 / (1 - order)).
    """
    p = normalised(pattern)
    if order == 1:
        return entropy(p).exp()
    if math.isinf(order):
        return 1 / p.amax(-1)
    return torch.where(p == 0, 0.0, p**order).sum(-1) ** (1 / (1 - order))


def logit_mean(scores: Float[Tensor, "*axes key"], visible: Bool[Tensor, "*axes key"]) -> Float[Tensor, "*axes"]:
    """Mean score over the visible keys of a row."""
    return widened(scores).masked_fill(~visible, 0.0).sum(-1) / visible.sum(-1)


def centred_scores(scores: Float[Tensor, "*axes key"], visible: Bool[Tensor, "*axes key"]) -> Float[Tensor, "*axes key"]:
    """Scores less their row's mean over visible keys; 0 at the other keys."""
    mean = logit_mean(scores, visible)
    return (widened(scores) - mean[..., None]).masked_fill(~visible, 0.0)


def logit_std(scores: Float[Tensor, "*axes key"], visible: Bool[Tensor, "*axes key"]) -> Float[Tensor, "*axes"]:
    """Standard deviation of a row's scores over its visible keys (divided by n, not n - 1), in nats.

    Unchanged by a constant added to the row, as the softmax is.
    """
    squares = centred_scores(scores, visible).square().sum(-1)
    return (squares / visible.sum(-1)).sqrt()


def temperature(std: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """1 / logit std: the T at which softmax(z / T) of the row's standardised scores z is the row's pattern; inf if std = 0."""
    return 1 / std


def freezing_ratio(std: Float[Tensor, "*axes"], n_keys: Num[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """std / sqrt(2 ln n), comparable across lengths: Gaussian scores with a ratio under 1 spread over many keys, with a ratio
    over 1 they freeze onto few (the random-energy model, Derrida 1981). NaN where n < 2."""
    return torch.where(n_keys >= 2, std / (2 * n_keys.clamp(min=2).log()).sqrt(), math.nan)


def total_variation(p: Float[Tensor, "*axes key"], q: Float[Tensor, "*#axes key"]) -> Float[Tensor, "*axes"]:
    """0.5 sum |p - q|: in [0, 1] for two distributions."""
    return 0.5 * (widened(p) - widened(q)).abs().sum(-1)


def uniformity_error(pattern: Float[Tensor, "*axes key"], visible: Bool[Tensor, "*axes key"]) -> Float[Tensor, "*axes"]:
    """Total variation between a row and the uniform one over its visible keys, in [0, 1]."""
    return total_variation(normalised(pattern), visible / visible.sum(-1, keepdim=True))


def linear_attention(scores: Float[Tensor, "*axes key"], visible: Bool[Tensor, "*axes key"]) -> Float[Tensor, "*axes key"]:
    """First-order softmax, (1 + s - mean s) / n over visible keys: rows sum to 1, weights may be negative."""
    linear = (1 + centred_scores(scores, visible)) / visible.sum(-1, keepdim=True)
    return linear.masked_fill(~visible, 0.0)


def linearity_error(scores: Float[Tensor, "*axes key"], visible: Bool[Tensor, "*axes key"]) -> Float[Tensor, "*axes"]:
    """Total variation between softmax attention and its first-order form: 0 for a head that is a linear function of its
    scores, about 0.22 at logit std 1, above 1 where the linear form fails altogether."""
    exact = widened(scores).masked_fill(~visible, -math.inf).softmax(-1)
    return total_variation(exact, linear_attention(scores, visible))


def static_error(pattern: Float[Tensor, "input ... key"]) -> Float[Tensor, "input ..."]:
    """Total variation between each input's rows and the mean rows of all *other* inputs: 0 for attention that depends on
    positions alone (Hassid et al. 2022, arXiv 2211.03495). Needs at least two inputs of one length, else NaN."""
    p = normalised(pattern)
    others = (p.sum(0, keepdim=True) - p) / (len(p) - 1) if len(p) > 1 else torch.full_like(p, math.nan)
    return total_variation(p, others)


def entropy_lower_bound(norm: float, n_keys: int) -> float:
    """The least entropy, in nats, of softmax(s) over n keys with Euclidean norm ||s|| <= norm (Zhai et al. 2023, 2303.06296).

    Attained by one score at norm * sqrt((n-1)/n) and the rest at -norm / sqrt(n (n-1)).
    """
    if n_keys < 2:
        return 0.0
    beta = math.exp(-norm * math.sqrt(n_keys / (n_keys - 1)))
    partition = 1 + (n_keys - 1) * beta
    return math.log(partition) + norm * math.sqrt(n_keys * (n_keys - 1)) * beta / partition
