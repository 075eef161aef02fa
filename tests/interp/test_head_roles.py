"""Labels follow from numbers by the stated thresholds, and their evidence says which numbers."""

from __future__ import annotations

import math

import pytest

from interp.heads.roles import Measured, Thresholds, copying, head_labels

SCORES = ("induction", "previous_token", "duplicate_token", "first_token", "predecessor", "current_token")


def measured(distances=(20, 35, 50), baseline: float = 0.03, **numbers) -> Measured:
    """A head with these scores and nothing else; a score is one number or one per distance."""
    groups = max(len(distances), 1)
    by_group = dict.fromkeys(SCORES, (0.0,) * groups)
    copying_numbers = {}
    for name, value in numbers.items():
        if name in SCORES:
            by_group[name] = value if isinstance(value, tuple) else (value,) * groups
        else:
            copying_numbers[name] = value
    return Measured(by_group, dict.fromkeys(SCORES, baseline), distances, **copying_numbers)


def names(head: Measured, **thresholds) -> list[str]:
    return [label.name for label in head_labels(3, 1, head, Thresholds(**thresholds))]


COPIES = {"copying_effect": 0.8, "copying_effect_error": 0.1}


@pytest.mark.parametrize(
    "head, labels",
    [
        (measured(), []),
        (measured(induction=0.9, **COPIES), ["induction"]),
        (measured(induction=0.9, copying_effect=-0.8, copying_effect_error=0.1), ["anti-induction"]),
        (measured(induction=0.9, copying_effect=0.1, copying_effect_error=0.1), ["prefix-matching"]),
        (measured(induction=0.9, copying_effect=0.0, copying_effect_error=0.0), ["prefix-matching"]),
        (measured(induction=0.9), ["prefix-matching"]),
        (measured(induction=0.9, ov_copying=0.9), ["induction"]),
        (measured(induction=0.9, ov_copying=-0.9), ["anti-induction"]),
        (measured(induction=(0.95, 0.9, 0.2), **COPIES), []),
        (measured(induction=(1.0, 0.0, 0.0), **COPIES), ["positional"]),
        (measured(induction=(1.0, 0.0, 0.0), duplicate_token=(0.0, 1.0, 0.0)), ["positional"]),
        (measured(induction=(0.9, math.nan, math.nan), distances=(20, 35, 50), **COPIES), ["prefix-matching"]),
        (measured(induction=(0.9,), distances=(20,), **COPIES), ["prefix-matching"]),
        (measured(induction=(0.9,), distances=(), **COPIES), ["prefix-matching"]),
        (measured(induction=(0.9,), distances=(), copying_effect=-1.0, copying_effect_error=0.1), ["anti-induction"]),
        (measured(induction=math.nan, duplicate_token=math.nan, previous_token=0.9), ["previous-token"]),
        (measured(duplicate_token=0.6), ["duplicate-token"]),
        (measured(predecessor=0.6), ["predecessor"]),
        (measured(first_token=0.9, current_token=0.5), ["first-token", "current-token"]),
        (measured(first_token=0.6, baseline=0.5), []),  # short texts: a uniform head would get 0.5
    ],
)
def test_labels(head: Measured, labels: list[str]):
    assert names(head) == labels


def test_the_direct_effect_outranks_ablation_and_ablation_the_eigenvalues():
    clear = {"ablation_effect": 0.5, "ablation_effect_error": 0.1}
    assert copying(measured(ov_copying=-1.0, **COPIES, ablation_effect=-2.0, ablation_effect_error=0.1), Thresholds()).sign == 1
    unclear = measured(ov_copying=-1.0, copying_effect=-0.1, copying_effect_error=0.1, **clear)
    assert copying(unclear, Thresholds()).sign == 1
    assert "ablating" in copying(unclear, Thresholds()).reason
    neither = measured(ov_copying=-1.0, copying_effect=-0.1, copying_effect_error=0.1)
    assert copying(neither, Thresholds()).sign == 0


def test_evidence_gives_the_numbers():
    (label,) = head_labels(3, 1, measured(induction=(0.9, 0.8, 0.7), **COPIES))
    assert (label.layer, label.head) == (3, 1)
    for part in ("0.80 of its attention", "at least 0.70 at each of 3 distances", "uniform head 0.03", "by 0.8 (directly)"):
        assert part in label.evidence
    (positional,) = head_labels(0, 0, measured(induction=(1.0, 0.0, 0.02)))
    assert "1.00 at distance 20, 0.00 at distance 35, 0.02 at distance 50" in positional.evidence
    (single,) = head_labels(0, 0, measured(induction=0.9, distances=(20,), **COPIES))
    assert "a fixed offset is not excluded" in single.evidence


def test_thresholds_are_arguments():
    head = measured(induction=0.25, previous_token=0.35, **COPIES)
    assert names(head) == []
    assert names(head, token_role=0.2, position_role=0.3) == ["induction", "previous-token"]
    assert names(measured(induction=0.9, copying_effect=0.25, copying_effect_error=0.1), standard_errors=2.0) == ["induction"]
