"""Which experts a token goes to, and how much each counts: pure functions from router logits to expert weights.

A router ranks the experts of each token, keeps the `n_active` best, and gives each of these its affinity as weight; all
others get 0. Affinities are a softmax over all experts or a sigmoid of each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .config import ExpertsConfig

Logits = Float[Tensor, "*token expert"]
Correction = Float[Tensor, " expert"]
Router = Callable[[Logits, ExpertsConfig, Correction | None], Logits]


def top_k_router(
    logits: Logits, options: ExpertsConfig, correction: Correction | None, *, affinity: Callable[[Tensor], Tensor]
) -> Logits:
    """Weights of the `options.n_active` best experts of each token (Shazeer et al. 2017, arXiv 1701.06538), 0 for the rest.

    correction: added to the affinities for the ranking only, never to the weights; it balances the load without a loss term
    (Wang et al. 2024, arXiv 2408.15664).
    """
    affinities = affinity(logits)
    # Logits rank as affinities do, and do not tie where a sigmoid saturates; but sums need affinities.
    ranking = logits if correction is None and options.n_groups == 1 else affinities
    chosen = choose_experts(ranking if correction is None else ranking + correction, options)
    weights = affinities.gather(-1, chosen)
    if options.normalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return torch.zeros_like(affinities).scatter(-1, chosen, weights * options.scale)


def choose_experts(ranking: Logits, options: ExpertsConfig) -> Int[Tensor, "*token n_active"]:
    """The experts with the highest ranking, taken from the best groups only where there are groups."""
    if options.n_groups > 1:
        ranking = ranking.masked_fill(~_in_best_groups(ranking, options), float("-inf"))
    return ranking.topk(options.n_active, -1).indices


def _in_best_groups(ranking: Logits, options: ExpertsConfig) -> Tensor:
    """Whether each expert's group is among the `n_active_groups` best; a group ranks by the sum of its best experts."""
    by_group = ranking.unflatten(-1, (options.n_groups, -1))
    best = by_group.topk(options.group_top, -1).values.sum(-1).topk(options.n_active_groups, -1).indices
    allowed = torch.zeros(by_group.shape[:-1], dtype=torch.bool, device=ranking.device).scatter(-1, best, True)
    return allowed[..., None].expand_as(by_group).flatten(-2)


ROUTERS: dict[str, Router] = {
    "softmax": partial(top_k_router, affinity=partial(torch.softmax, dim=-1)),
    "sigmoid": partial(top_k_router, affinity=torch.sigmoid),
}
"""By name: (logits, options, correction) -> weights [*token, expert], 0 for experts that a token does not go to."""
