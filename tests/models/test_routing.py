"""Routing: which experts a token goes to and with what weights, each rule against a loop over tokens written out."""

from __future__ import annotations

import itertools

import pytest
import torch

from models.config import ExpertsConfig
from models.routing import ROUTERS, choose_experts

N_TOKENS, N_EXPERTS = 40, 12


def options(**changes) -> ExpertsConfig:
    return ExpertsConfig(**({"n_experts": N_EXPERTS, "n_active": 3, "d_expert": 1} | changes))


def logits(seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(N_TOKENS, N_EXPERTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def best(values: list[float], n: int, allowed: list[int] | None = None) -> list[int]:
    return sorted(range(len(values)) if allowed is None else allowed, key=lambda each: -values[each])[:n]


def by_hand(row: torch.Tensor, cfg: ExpertsConfig, correction: torch.Tensor) -> torch.Tensor:
    affinity = row.exp() / row.exp().sum() if cfg.router == "softmax" else 1 / (1 + (-row).exp())
    ranking = (affinity + correction).tolist()
    size = cfg.n_experts // cfg.n_groups
    groups = [list(range(first, first + size)) for first in range(0, cfg.n_experts, size)]
    totals = [sum(ranking[each] for each in best(ranking, cfg.group_top, group)) for group in groups]
    allowed = list(itertools.chain.from_iterable(groups[group] for group in best(totals, cfg.n_active_groups)))
    weights = torch.zeros_like(row)
    chosen = best(ranking, cfg.n_active, allowed)
    for each in chosen:
        total = sum(affinity[other] for other in chosen) if cfg.normalise else 1.0
        weights[each] = affinity[each] / total * cfg.scale
    return weights


RULES = {
    "softmax": {},
    "one expert": {"n_active": 1},
    "all experts": {"n_active": N_EXPERTS},
    "normalised": {"normalise": True},
    "scaled": {"normalise": True, "scale": 2.5},
    "sigmoid": {"router": "sigmoid"},
    "groups": {"n_groups": 4, "n_active_groups": 2},
    "groups by two": {"n_groups": 4, "n_active_groups": 2, "group_top": 2},
    "sigmoid groups by two": {"router": "sigmoid", "n_groups": 3, "n_active_groups": 1, "group_top": 2, "normalise": True},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("corrected", [False, True], ids=["plain", "corrected"])
def test_weights(rule: str, corrected: bool) -> None:
    cfg = options(**RULES[rule], correction=corrected)
    correction = 0.4 * torch.randn(N_EXPERTS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    got = ROUTERS[cfg.router](logits(), cfg, correction if corrected else None)
    wanted = torch.stack([by_hand(row, cfg, correction if corrected else torch.zeros_like(correction)) for row in logits()])
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0)
    assert ((got > 0).sum(-1) == cfg.n_active).all()


def test_a_correction_moves_tokens_and_not_weights() -> None:
    """With all experts chosen, only the ranking could have changed; with few, an expert with a large correction is always in."""
    correction = torch.zeros(N_EXPERTS, dtype=torch.float64)
    correction[7] = 10.0
    everyone = options(router="sigmoid", n_active=N_EXPERTS)
    assert torch.equal(ROUTERS["sigmoid"](logits(), everyone, correction), torch.sigmoid(logits()))
    few = ROUTERS["sigmoid"](logits(), options(router="sigmoid", n_active=2), correction)
    assert torch.equal(few[:, 7], torch.sigmoid(logits())[:, 7])


def test_saturated_sigmoids_do_not_tie() -> None:
    """In float32 both sigmoids are 1, and the larger logit still wins."""
    row = torch.tensor([[30.0, 40.0, -1.0]])
    assert ROUTERS["sigmoid"](row, options(n_experts=3, n_active=1, router="sigmoid"), None).tolist() == [[0.0, 1.0, 0.0]]


def test_experts_outside_the_best_groups_are_never_chosen() -> None:
    """The two largest logits lie in a group whose other experts are poor: with sums of three, it is not among the best."""
    row = torch.tensor([[9.0, 8.0, -40.0, 5.0, 5.0, 5.0]])
    cfg = options(n_experts=6, n_active=2, n_groups=2, group_top=3)
    assert set(choose_experts(row, cfg)[0].tolist()) <= {3, 4, 5}
    assert set(choose_experts(row, options(n_experts=6, n_active=2))[0].tolist()) == {0, 1}


def test_gradients_reach_the_logits_of_the_chosen() -> None:
    start = logits().requires_grad_()
    weights = ROUTERS["sigmoid"](start, options(router="sigmoid"), None)
    weights.sum().backward()
    assert torch.equal(start.grad != 0, weights != 0)
