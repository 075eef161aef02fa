"""Faithfulness against circuit size, and the two areas under that curve used to compare attribution methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import counted, whole_number
from ..run import progress as progress_bar
from .checks import check_type
from .circuit import Circuit
from .errors import CircuitError
from .evaluate import Evaluation
from .metrics import Metric, MetricFunction
from .scores import EdgeScores
from .search import select

if TYPE_CHECKING:
    import pandas

FRACTIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the edges, as in the Mechanistic Interpretability Benchmark (Mueller et al. 2025, arXiv 2504.13151)."""


@dataclass(frozen=True)
class CurvePoint:
    """A circuit of `n_edges` (a `fraction` of all), its mean metric and its faithfulness."""

    n_edges: int
    fraction: float
    metric: float
    faithfulness: float


@dataclass(frozen=True, repr=False)
class FaithfulnessCurve:
    """Points by size, from the empty circuit (faithfulness 0 by definition) to the whole model (1).

    cpr: area under faithfulness, larger when few edges restore the behaviour; it rewards values above 1, and the benchmark
    ranks edges by signed score for it. cmd: area of |1 - faithfulness|, smaller when few edges match the model; the benchmark
    ranks by magnitude for it.
    """

    points: tuple[CurvePoint, ...]
    metric: str
    ablation: str
    ranking: str
    """How edges were chosen: "top" or "greedy", by "magnitude" or "benefit"."""
    n_pairs: int

    def __repr__(self) -> str:
        what = f"{self.metric}, {self.ablation} ablation, {self.ranking}, {counted(len(self.points), 'point')}"
        return f"FaithfulnessCurve({what}, {counted(self.n_pairs, 'pair')}, CPR {self.cpr:.3f}, CMD {self.cmd:.3f})"

    @property
    def cpr(self) -> float:
        return area([point.fraction for point in self.points], [point.faithfulness for point in self.points])

    @property
    def cmd(self) -> float:
        return area([point.fraction for point in self.points], [abs(1 - point.faithfulness) for point in self.points])

    def size_for(self, faithfulness: float) -> int | None:
        """Edges of the smallest circuit on the curve that reaches a faithfulness; None where none does."""
        return next((point.n_edges for point in self.points if point.faithfulness >= faithfulness), None)

    def to_pandas(self) -> pandas.DataFrame:
        import pandas

        return pandas.DataFrame([vars(point) for point in self.points])


def area(fractions: Sequence[int | float], values: Sequence[int | float]) -> float:
    """Area under values against fractions by the trapezoid rule. Raises CircuitError unless fractions rise from 0 to 1."""
    rising = all(a < b for a, b in zip(fractions[:-1], fractions[1:], strict=True))
    if len(fractions) != len(values) or len(fractions) < 2 or fractions[0] != 0 or fractions[-1] != 1 or not rising:
        raise CircuitError(f"an area needs values at fractions that rise from 0 to 1, got fractions {list(fractions)}.")
    steps = zip(fractions[:-1], fractions[1:], values[:-1], values[1:], strict=True)
    return sum((b - a) * (low + high) / 2 for a, b, low, high in steps)


def faithfulness_curve(
    model: Any,
    scores: EdgeScores,
    pairs: Any,
    sizes: Sequence[int | float] | None = None,
    *,
    signed: bool = False,
    greedy: bool = False,
    metric: str | MetricFunction | Metric = "logit_diff",
    ablation: str = "patching",
    batch_size: int | None = None,
    calibration: Any = None,
    progress: bool | None = None,
) -> FaithfulnessCurve:
    """Evaluate the best circuits of several sizes.

    sizes: numbers of edges (whole numbers) or shares of all edges (fractions up to 1.0); 0 and all edges are always added.
    signed, greedy: how `select` ranks and picks. Other arguments are those of `evaluate`.
    """
    check_type("scores", scores, EdgeScores)
    wanted = edge_counts(FRACTIONS if sizes is None else sizes, scores.graph.n_edges)
    job = Evaluation(model, scores.graph, pairs, metric, ablation, batch_size, calibration)
    points = [_point(job, Circuit.empty(scores.graph), float(job.empty.mean()))]
    for n in progress_bar(wanted, description="circuits", enabled=progress):
        circuit = select(scores, greedy=n, signed=signed) if greedy else select(scores, top=n, signed=signed)
        points.append(_point(job, circuit, float(job.values(circuit).mean())))
    points.append(_point(job, Circuit.full(scores.graph), float(job.full.mean())))
    unique = {point.n_edges: point for point in points}
    ranking = f"{'greedy' if greedy else 'top'} by {'benefit' if signed else 'magnitude'}"
    return FaithfulnessCurve(tuple(unique[n] for n in sorted(unique)), job.metric.name, ablation, ranking, len(pairs))


def edge_counts(sizes: Sequence[int | float], n_edges: int) -> list[int]:
    """Numbers of edges, sorted, strictly between none and all. Raises CircuitError for a size that is neither count nor share."""
    counts = set()
    for size in sizes:
        count = whole_number(round(size * n_edges) if isinstance(size, float) and math.isfinite(size) else size)
        if count is None or not 0 <= count <= n_edges:
            raise CircuitError(f"sizes must be edge counts up to {n_edges} or fractions from 0.0 to 1.0, got {size!r}.")
        counts.add(count)
    return sorted(counts - {0, n_edges})


def _point(job: Evaluation, circuit: Circuit, metric: float) -> CurvePoint:
    full, empty = float(job.full.mean()), float(job.empty.mean())
    return CurvePoint(circuit.n_edges, circuit.n_edges / job.graph.n_edges, metric, (metric - empty) / (full - empty))
