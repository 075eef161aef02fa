"""What the numbers of a heads.json mean: title, unit, range and a sentence for each, in the order views show them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .names import role_class, role_of
from .page import ViewError, finite, rounded

_MASS, _SHARE = "attention mass", "share of the maximum"


@dataclass(frozen=True)
class Score:
    """One number per head.

    unit_range: it lies in [0, 1] by definition, so colours span that and not the data. extra: tables show it on request.
    """

    key: str
    title: str
    short: str
    unit: str
    meaning: str
    unit_range: bool = False
    extra: bool = False


KNOWN = (
    Score("induction", "induction", "induction", _MASS, "From a repeated token to the token after its earlier copy.", True),
    Score("induction_min", "induction, minimum", "ind. min", _MASS, "Induction at the repeat distance where it is lowest.", True),
    Score("induction_baseline", "induction, uniform head", "ind. base", _MASS, "Induction of a head that attends evenly.", True),
    Score("previous_token", "previous token", "previous", _MASS, "From each token to the one before it.", True),
    Score("duplicate_token", "duplicate token", "duplicate", _MASS, "From a repeated token to its earlier copies.", True),
    Score("first_token", "first token", "first", _MASS, "From every later token to the first one.", True),
    Score("entropy", "entropy", "entropy", "nats", "Spread of attention over the visible keys."),
    Score("normalized_entropy", "normalised entropy", "norm. ent.", _SHARE, "Entropy over that of even attention.", True),
    Score(
        "normalized_entropy_no_first",
        "normalised entropy without the first token",
        "n. ent. −1st",
        _SHARE,
        "The same with the first token left out.",
        True,
    ),
    Score("logit_std", "logit standard deviation", "logit std", "nats", "How far the scores before softmax vary within a row."),
    Score("temperature", "temperature", "temp.", "1/nats", "One over the logit standard deviation: high is diffuse."),
    Score(
        "predecessor", "predecessor", "predec.", _MASS, "From a repeated token to the token before its earlier copy.", True, True
    ),
    Score("current_token", "current token", "current", _MASS, "From each token to itself.", True, True),
    Score("row_sum", "sum of a row", "row sum", _MASS, "Less than 1 where a learned sink takes part.", False, True),
    Score(
        "effective_tokens",
        "effective tokens",
        "eff. tokens",
        "tokens",
        "exp(entropy): how many keys share the attention.",
        False,
        True,
    ),
    Score("freezing_ratio", "freezing ratio", "freezing", "", "Over 1, attention freezes onto few keys.", False, True),
    Score("uniformity_error", "distance from uniform", "non-uniform", "total variation", "From even attention.", True, True),
    Score(
        "linearity_error",
        "distance from linear",
        "non-linear",
        "total variation",
        "From attention linear in the scores.",
        True,
        True,
    ),
    Score(
        "first_only_rows",
        "rows on the first token only",
        "1st only",
        "share of rows",
        "Rows with next to no attention beyond the first token.",
        True,
        True,
    ),
    Score(
        "ov_copying", "OV copying", "OV copy", "from −1 to 1", "Eigenvalues of the OV circuit on the bare embedding.", False, True
    ),
    Score(
        "copying_effect",
        "copying effect",
        "copy effect",
        "logits",
        "Added directly to the token induction calls for, less the mean over the vocabulary.",
        False,
        True,
    ),
    Score("copying_effect_error", "copying effect, standard error", "c. e. error", "logits", "Over rows.", False, True),
)


@dataclass(frozen=True)
class Label:
    """What a head is called and what speaks for it."""

    text: str
    evidence: str = ""

    @property
    def role(self) -> str:
        return role_class(role_of(self.text))


@dataclass(frozen=True)
class HeadRow:
    """One head: its numbers by key (None where undefined) and its labels."""

    layer: int
    head: int
    values: Mapping[str, float | None]
    labels: tuple[Label, ...]


@dataclass(frozen=True)
class Heads:
    """A heads.json, checked. scores: those that at least one head has, known ones first."""

    n_layers: int
    n_heads: int
    scores: tuple[Score, ...]
    rows: tuple[HeadRow, ...]


def read_heads(heads: Mapping[str, Any]) -> Heads:
    """Checks a heads.json. Raises ViewError naming the head and field at fault."""
    n_layers, n_heads = (_count(heads, field) for field in ("n_layers", "n_heads"))
    entries = heads.get("heads")
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise ViewError(f"heads['heads'] is {type(entries).__name__}; wanted the list of heads of a heads.json.")
    rows = tuple(_row(entry, n_layers, n_heads) for entry in entries)
    seen = dict.fromkeys(key for row in rows for key, value in row.values.items() if value is not None)
    known = [score for score in KNOWN if score.key in seen]
    others = [key for key in seen if key not in {score.key for score in KNOWN}]
    extra = [Score(key, key.replace("_", " "), key.replace("_", " "), "", "", extra=True) for key in others]
    return Heads(n_layers, n_heads, (*known, *extra), rows)


def _count(heads: Mapping[str, Any], field: str) -> int:
    value = heads.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ViewError(f"heads[{field!r}] is {value!r}; wanted a whole number of at least 1.")
    return value


def _row(entry: Any, n_layers: int, n_heads: int) -> HeadRow:
    if not isinstance(entry, Mapping):
        raise ViewError(f"an entry of heads['heads'] is {entry!r}; wanted an object with layer, head and scores.")
    layer, head = entry.get("layer"), entry.get("head")
    if not (isinstance(layer, int) and isinstance(head, int) and 0 <= layer < n_layers and 0 <= head < n_heads):
        raise ViewError(f"an entry of heads['heads'] is layer {layer!r}, head {head!r}; the model has {n_layers} x {n_heads}.")
    skipped = ("layer", "head", "labels", "evidence")
    values = {
        key: finite(value, f"{key} of L{layer}H{head}")
        for key, value in entry.items()
        if key not in skipped and (value is None or isinstance(value, (int, float)))
    }
    return HeadRow(layer, head, values, tuple(_label(item, entry, values) for item in entry.get("labels") or ()))


def _label(item: Any, entry: Mapping[str, Any], values: Mapping[str, float | None]) -> Label:
    """A label is text, or an object with `label` (or `name`) and `evidence`; evidence may also stand beside the labels."""
    if isinstance(item, Mapping):
        name = str(item.get("label", item.get("name", "")))
        evidence = item.get("evidence")
    else:
        name = str(item)
        beside = entry.get("evidence")
        evidence = beside.get(name) if isinstance(beside, Mapping) else None
    return Label(name.replace("_", " "), _words(evidence) or _own_evidence(name, values))


def _words(evidence: Any) -> str:
    if isinstance(evidence, Mapping):
        return ", ".join(f"{str(key).replace('_', ' ')} {_number(value)}" for key, value in evidence.items())
    if isinstance(evidence, (list, tuple)):
        return ", ".join(map(str, evidence))
    return "" if evidence is None else str(evidence)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def _own_evidence(name: str, values: Mapping[str, float | None]) -> str:
    """The numbers of the head that bear the label's name."""
    key = role_of(name).replace(" ", "_")
    own = {field: value for field, value in values.items() if field.startswith(key) and value is not None}
    return _words({field: float(value) for field, value in own.items()})


def compact(value: float | None) -> float | None:
    """Five significant digits: two more than views print."""
    return None if value is None else rounded(value, 5)
