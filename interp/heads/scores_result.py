"""The result of `head_scores`: one number per head and column, labels with their evidence, and ways to show and store them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from ..errors import InterpError
from ..results import Result
from ..run import write_json
from .layers import LeftOut
from .roles import HeadLabel

if TYPE_CHECKING:
    import pandas
    from rich.table import Table

PATTERN_COLUMNS = ("induction", "induction_min", "induction_baseline", "previous_token", "duplicate_token", "first_token")
SHARPNESS_COLUMNS = ("entropy", "normalized_entropy", "normalized_entropy_no_first", "logit_std", "temperature")
MORE_PATTERN_COLUMNS = ("predecessor", "current_token", "row_sum")
MORE_SHARPNESS_COLUMNS = ("effective_tokens", "freezing_ratio", "uniformity_error", "linearity_error", "first_only_rows")
COPYING_COLUMNS = ("ov_copying", "copying_effect", "copying_effect_error", "ablation_effect", "ablation_effect_error")
COLUMNS = PATTERN_COLUMNS + SHARPNESS_COLUMNS + MORE_PATTERN_COLUMNS + MORE_SHARPNESS_COLUMNS + COPYING_COLUMNS
SHOWN = {
    "induction": "induction",
    "induction_min": "(min)",
    "previous_token": "prev.",
    "duplicate_token": "dupl.",
    "first_token": "first",
    "normalized_entropy": "entropy",
    "temperature": "temp.",
}
"""Columns of the printed table and their headings; entropy is the normalised one."""
PER_HEAD = ("layer", "head")

Column = Float[Tensor, "layer head"]


@dataclass(frozen=True)
class HeadValue:
    """A head and one of its numbers."""

    layer: int
    head: int
    value: float
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        """ "layer.head"."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True, repr=False, eq=False)
class HeadScores(Result):
    """Scores of every measured head; columns are [layer, head], NaN where undefined. Entropies and logits are in nats.

    Pattern scores are attention mass on the keys in question, averaged over queries that have such a key. They keep their sign
    where a layer's weights are signed. Where layers have different numbers of heads, the columns of those that a layer lacks
    are NaN, and tables leave them out.
    """

    schema: ClassVar[str] = "head-scores/2"
    axes: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(COLUMNS, PER_HEAD) | {
        "by_distance": ("score", "distance", *PER_HEAD),
        "baselines": ("score", *PER_HEAD),
        "n_targets": ("score", *PER_HEAD),
    }
    records: ClassVar[dict[str, type]] = {"labels": HeadLabel, "left_out": LeftOut}

    model: str
    n_layers: int
    n_heads: int
    """In the measured layer with most."""
    seed: int
    source: str
    """"repeated random tokens" or "given tokens"."""
    batch: int
    prepend_bos: bool | None
    """Whether a BOS was put in front; None for given token ids."""
    logits_from: str
    """"scores", or "pattern" where the model's score hook does not hold what its softmax sees."""
    loss_first_half: float | None
    """Next-token loss, nats, inside the first occurrence of the random segment; None for given tokens."""
    loss_second_half: float | None
    """The same for the same tokens the second time, when they can be copied."""
    layer: tuple[int, ...]
    heads_in: tuple[int, ...]
    """How many heads each of these layers has."""
    score: tuple[str, ...]
    distance: tuple[int, ...]
    """Repeat distances measured; (0,) for given tokens."""
    requested_distances: tuple[int, ...]
    """Those asked for: larger than the measured ones where they did not fit the model. Empty for given tokens."""

    induction: Column
    """Mass on keys that follow an earlier occurrence of the query's token."""
    induction_min: Column
    """The same at the worst distance; NaN for given tokens."""
    induction_baseline: Column
    """The same for a head that spreads evenly."""
    previous_token: Column
    duplicate_token: Column
    """Mass on earlier occurrences of the query's token."""
    first_token: Column
    entropy: Column
    normalized_entropy: Column
    """Entropy over ln(number of visible keys), in [0, 1]."""
    normalized_entropy_no_first: Column
    """The same without the first token, the usual sink; over the rows that keep any attention for the rest."""
    logit_std: Column
    """Standard deviation of the scores that enter the softmax, over visible keys."""
    temperature: Column
    """1 / logit_std, in 1/nats; inf for a head that ignores its input."""
    predecessor: Column
    current_token: Column
    row_sum: Column
    """Sum of a row of attention: 1 for a softmax, less where a learned sink takes part."""
    effective_tokens: Column
    """exp(entropy)."""
    freezing_ratio: Column
    """logit_std / sqrt(2 ln n): over 1, attention freezes onto few keys."""
    uniformity_error: Column
    """Total variation distance from uniform attention."""
    linearity_error: Column
    """Total variation distance from attention that is linear in the scores."""
    first_only_rows: Column
    """Share of rows with less than 1e-6 of their attention beyond the first token."""
    ov_copying: Column
    """Eigenvalue copying of the OV circuit on the bare embedding, in [-1, 1]."""
    copying_effect: Column
    """Logits added directly to the token that induction calls for, less the mean over the vocabulary."""
    copying_effect_error: Column
    """Standard error of copying_effect over rows."""
    ablation_effect: Column
    """Logits that token loses when the head's output is replaced by its mean; only for heads that match prefixes and whose
    copying_effect has no clear sign, NaN for the rest."""
    ablation_effect_error: Column

    by_distance: Float[Tensor, "score distance layer head"]
    baselines: Float[Tensor, "score layer head"]
    n_targets: Int[Tensor, "score layer head"]
    """Query rows that each pattern score is averaged over."""
    labels: tuple[HeadLabel, ...]
    left_out: tuple[LeftOut, ...]
    """What could not be measured in some layer, and why."""

    def labels_at(self, layer: int, head: int) -> tuple[HeadLabel, ...]:
        """The labels of one head, with their evidence; empty for a head that earned none."""
        return tuple(label for label in self.labels if (label.layer, label.head) == (layer, head))

    def labelled(self, name: str) -> tuple[tuple[int, int], ...]:
        """The (layer, head) of every head with this label."""
        return tuple((label.layer, label.head) for label in self.labels if label.name == name)

    def top(self, column: str, k: int = 10) -> list[HeadValue]:
        """The k heads with the largest values of a column, largest first; heads without a value are left out.

        Raises InterpError for a column that does not exist.
        """
        if column not in COLUMNS:
            raise InterpError(f"column must be one of {', '.join(COLUMNS)}; got {column!r}.")
        values = getattr(self, column)
        order = values.nan_to_num(-math.inf, posinf=math.inf).flatten().argsort(descending=True, stable=True).tolist()
        places = [divmod(index, self.n_heads) for index in order]
        return [self._value(row, head, float(values[row, head])) for row, head in places if not values[row, head].isnan()][:k]

    def _value(self, row: int, head: int, value: float) -> HeadValue:
        layer = self.layer[row]
        return HeadValue(layer, head, value, tuple(label.name for label in self.labels_at(layer, head)))

    def to_pandas(self, axes: Any = None) -> pandas.DataFrame:
        """One row per head with all columns and the names of its labels; other axes as in `Result.to_pandas`."""
        frame = super().to_pandas(axes)
        if axes is None or tuple(axes) == PER_HEAD:
            limits = dict(zip(self.layer, self.heads_in, strict=True))
            frame = frame[frame["head"] < frame["layer"].map(limits)].reset_index(drop=True)
            names = [
                ", ".join(label.name for label in self.labels_at(*place))
                for place in zip(frame["layer"], frame["head"], strict=True)
            ]
            frame["labels"] = names
        return frame

    def to_heads_json(self) -> dict[str, Any]:
        """The content of heads.json, schema "heads/1": plain data, None where a number is undefined or infinite."""
        return {
            "schema": "heads/1",
            "model": self.model,
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "seed": self.seed,
            "loss_first_half": self.loss_first_half,
            "loss_second_half": self.loss_second_half,
            "heads": [self._head_json(row, head) for row, n in enumerate(self.heads_in) for head in range(n)],
            "source": self.source,
            "distances": [distance for distance in self.distance if distance],
            "requested_distances": list(self.requested_distances),
            "batch": self.batch,
            "prepend_bos": self.prepend_bos,
            "logits_from": self.logits_from,
            **({"left_out": [dataclasses.asdict(each) for each in self.left_out]} if self.left_out else {}),
        }

    def _head_json(self, row: int, head: int) -> dict[str, Any]:
        values = {name: _finite(float(getattr(self, name)[row, head])) for name in COLUMNS}
        labels = self.labels_at(self.layer[row], head)
        fixed = {name: values.pop(name) for name in PATTERN_COLUMNS + SHARPNESS_COLUMNS}
        named = {"labels": [label.name for label in labels]}
        evidence = {label.name: label.evidence for label in labels}
        counts = dict(zip(self.score, self.n_targets[:, row, head].tolist(), strict=True))
        more = {"evidence": evidence, "n_targets": counts}
        return {"layer": self.layer[row], "head": head, **fixed, **named, **values, **more}

    def write_heads_json(self, path: str | Path) -> Path:
        """Write heads.json, in one step."""
        return write_json(path, self.to_heads_json())

    def table(self, k: int = 10, by: str = "induction") -> Table:
        """The k heads with the largest values of a column as a table for `rich.print`."""
        from rich.box import SIMPLE
        from rich.table import Table

        shown = {by: by.replace("_", " ")} | SHOWN
        table = Table(title=f"{self.model}: heads by {by.replace('_', ' ')}", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("head", no_wrap=True)
        for heading in shown.values():
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("labels", min_width=len("duplicate-token"))
        for found in self.top(by, k):
            row = self.layer.index(found.layer)
            numbers = [_number(float(getattr(self, name)[row, found.head])) for name in shown]
            table.add_row(found.name, *numbers, ", ".join(found.labels))
        return table

    def summary(self) -> str:
        """The best head of the main types."""
        best = {name: self.top(name, 1) for name in ("induction", "previous_token", "duplicate_token")}
        found = [f"{name.replace('_', ' ')} {heads[0].name} ({heads[0].value:.2f})" for name, heads in best.items() if heads]
        said = f"{sum(self.heads_in)} heads; most {', '.join(found)}" if found else "no head has a score"
        missing = [str(each.layer) for each in self.left_out if each.what == "scores"]
        return f"{said}; layers without a pattern: {', '.join(missing)}" if missing else said


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3f}"
