"""What to call a head, and why: labels that follow from measured numbers by stated thresholds, each with its evidence.

Scores are compared as *excess over chance*, (score - uniform) / (1 - uniform): 0 for a head that spreads evenly, 1 for a perfect
one, whatever the length of the text. Roles about tokens (induction, duplicate, predecessor) must hold at the worst of the
measured distances, as a head that attends a fixed offset looks perfect at one of them. A label describes what a head does on the
measured tokens. That it matters for the model's behaviour is for ablation and patching to show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MEANINGS = {
    "induction": "tokens that followed an earlier occurrence of the current token",
    "duplicate_token": "earlier occurrences of the current token",
    "predecessor": "tokens that preceded an earlier occurrence of the current token",
    "previous_token": "the previous token",
    "first_token": "the first token",
    "current_token": "the current token itself",
}
TOKEN_ROLES = ("induction", "duplicate_token", "predecessor")
POSITION_ROLES = ("previous_token", "first_token", "current_token")


@dataclass(frozen=True)
class Thresholds:
    """Where a score becomes a label. All are excesses over chance, in [0, 1], except the last."""

    token_role: float = 0.3
    """Induction, duplicate and predecessor, at the worst distance; 0.3 is the cut of Crosbie & Shutova 2024 (2407.07011)."""
    position_role: float = 0.4
    """Previous token, first token and current token, on average."""
    positional_high: float = 0.5
    positional_low: float = 0.1
    """A token role above the first at one distance and below the second at another follows the offset, not the token."""
    standard_errors: float = 3.0
    """A copying effect nearer to 0 than this many standard errors has no sign."""


@dataclass(frozen=True)
class HeadLabel:
    """A name for what a head does and the numbers that say so."""

    layer: int
    head: int
    name: str
    evidence: str


@dataclass(frozen=True)
class Measured:
    """The numbers of one head that labels rest on; NaN where undefined."""

    by_group: dict[str, tuple[float, ...]]
    """Each pattern score at each distance (or on the given tokens)."""
    baseline: dict[str, float]
    """The same for a head that spreads evenly, averaged over distances."""
    distances: tuple[int, ...] = ()
    ov_copying: float = math.nan
    copying_effect: float = math.nan
    copying_effect_error: float = math.nan
    ablation_effect: float = math.nan
    ablation_effect_error: float = math.nan

    def mean(self, score: str) -> float:
        """Mean over the groups where the score is defined."""
        found = self.defined(score)
        return sum(found) / len(found) if found else math.nan

    def defined(self, score: str) -> list[float]:
        """The score in each group that has one."""
        return [value for value in self.by_group[score] if not math.isnan(value)]

    def excess(self, score: str, value: float) -> float:
        """A value of this score as excess over chance; NaN where the score is undefined."""
        chance = self.baseline[score]
        return (value - chance) / (1 - chance) if chance < 1 else math.nan


@dataclass(frozen=True)
class Copying:
    """Whether a head raises (+1) or lowers (-1) the logit of what it attends, or 0 where that is not known, and why."""

    sign: int
    reason: str


def copying(head: Measured, thresholds: Thresholds) -> Copying:
    """The sign of a head's copying, by the most faithful evidence there is.

    First its direct effect on the logits, if that is clear; then what ablating it does, which counts the effect through later
    heads; and only where neither could be measured the eigenvalues of its OV circuit, which are of the bare embedding and not of
    the values that the head moves.
    """
    for effect, error, how in (
        (head.copying_effect, head.copying_effect_error, "directly"),
        (head.ablation_effect, head.ablation_effect_error, "mostly through later layers, as ablating it shows"),
    ):
        if abs(effect) > thresholds.standard_errors * error:
            verb = "raises" if effect > 0 else "lowers"
            return Copying(1 if effect > 0 else -1, f"{verb} the logit of the token to copy by {abs(effect):.2g} ({how})")
    if math.isnan(head.copying_effect) and abs(head.ov_copying) > 0:
        sign = 1 if head.ov_copying > 0 else -1
        return Copying(sign, f"its OV eigenvalue copying is {head.ov_copying:+.2f} (its effect on the logits was not measurable)")
    return Copying(0, "has no clear effect on the logit of the token to copy")


def matches_prefixes(head: Measured, thresholds: Thresholds) -> bool:
    """Whether a head attends the successors of earlier occurrences at every distance: what copying turns into induction."""
    values = head.defined("induction")
    return bool(values) and head.excess("induction", min(values)) >= thresholds.token_role


def head_labels(layer: int, head: int, measured: Measured, thresholds: Thresholds | None = None) -> tuple[HeadLabel, ...]:
    """All labels a head earns; none for most heads. Names: induction, anti-induction, prefix-matching, duplicate-token,
    predecessor, positional, previous-token, first-token, current-token."""
    found = _labels(measured, thresholds or Thresholds())
    return tuple(HeadLabel(layer, head, name, evidence) for name, evidence in found)


def _labels(head: Measured, thresholds: Thresholds) -> Iterator[tuple[str, str]]:
    positional = False
    for score in TOKEN_ROLES:
        if not (values := head.defined(score)):
            continue
        low, high = (head.excess(score, value) for value in (min(values), max(values)))
        if low >= thresholds.token_role:
            yield _token_label(score, head, thresholds)
        elif high >= thresholds.positional_high and low <= thresholds.positional_low and not positional:
            positional = True
            yield "positional", _positional_evidence(score, head)
    for score in POSITION_ROLES:
        if head.excess(score, head.mean(score)) >= thresholds.position_role:
            yield score.replace("_", "-"), _mass_sentence(score, head) + "."


def _token_label(score: str, head: Measured, thresholds: Thresholds) -> tuple[str, str]:
    sentence = _mass_sentence(score, head)
    if score != "induction":
        return score.replace("_", "-"), f"{sentence}{_offset_caveat(head)}."
    found = copying(head, thresholds)
    evidence = f"{sentence}; {found.reason}{_offset_caveat(head)}."
    if found.sign < 0:
        return "anti-induction", evidence
    several = len(head.defined(score)) > 1
    return ("induction" if found.sign > 0 and several else "prefix-matching"), evidence


def _mass_sentence(score: str, head: Measured) -> str:
    values = head.defined(score)
    worst = f"at least {min(values):.2f} at each of {len(values)} distances; " if len(values) > 1 and score in TOKEN_ROLES else ""
    return f"puts {head.mean(score):.2f} of its attention on {MEANINGS[score]} ({worst}a uniform head {head.baseline[score]:.2f})"


def _offset_caveat(head: Measured) -> str:
    """Said where one distance or one text cannot tell matching tokens from attending a fixed offset."""
    return "" if len(head.distances) > 1 else "; measured at one distance or on given tokens, so a fixed offset is not excluded"


def _positional_evidence(score: str, head: Measured) -> str:
    pairs = zip(head.distances, head.by_group[score], strict=True)
    shown = ", ".join(f"{value:.2f} at distance {distance}" for distance, value in pairs if not math.isnan(value))
    cause = "it follows a fixed offset or a short reach, not the token"
    return f"its attention on {MEANINGS[score]} depends on the distance ({shown}): {cause}."
