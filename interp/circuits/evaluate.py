"""How faithful a circuit is: run it with everything else ablated and compare the metric with the whole model's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import counted
from .access import ModelView
from .checks import check_pairs, check_type
from .circuit import Circuit
from .errors import CircuitError, near
from .metrics import Metric, MetricFunction, Values, resolve_metric
from .patched import Ablation, Fixed, Patching, circuit_logits, mean_terms
from .runs import plain_run
from .search import ABLATIONS

_CARRY = {"patching": "their values on the corrupt prompts", "zero": "nothing", "mean": "each writer's mean output"}


@dataclass(frozen=True, repr=False)
class Faithfulness:
    """f = (m(circuit) - m(empty)) / (m(full) - m(empty)) with m the mean metric; not clipped, so it can leave [0, 1].

    per_pair: the metric of every pair for "circuit", "full" model and "empty" circuit.
    """

    faithfulness: float
    metric_circuit: float
    metric_full: float
    metric_empty: float
    per_pair: dict[str, Float[Tensor, " pairs"]]
    metric: str
    ablation: str
    n_edges: int
    n_edges_total: int
    n_pairs: int
    prompts: str = ""
    """Where the pairs come from."""

    def __repr__(self) -> str:
        return self.statement

    @property
    def statement(self) -> str:
        """In one sentence, what the circuit is faithful to."""
        source = f" ({self.prompts})" if self.prompts else ""
        return (
            f"With {self.n_edges:,} of {self.n_edges_total:,} edges kept and the others carrying {_CARRY[self.ablation]}, mean "
            f"{self.metric} is {self.metric_circuit:.4g}, against {self.metric_full:.4g} for the whole model and "
            f"{self.metric_empty:.4g} with every edge ablated: faithfulness {self.faithfulness:.3f} to {self.metric} on "
            f"{counted(self.n_pairs, 'prompt pair')}{source} under {self.ablation} ablation."
        )


def evaluate(
    model: Any,
    circuit: Circuit,
    pairs: Any,
    *,
    metric: str | MetricFunction | Metric = "logit_diff",
    ablation: str = "patching",
    batch_size: int | None = None,
    calibration: Any = None,
    mean_per_position: bool = False,
) -> Faithfulness:
    """Faithfulness of a circuit on clean prompts, every edge outside it ablated.

    ablation: "patching" (corrupt-prompt values), "zero" (a writer's term is left out), or "mean" (its mean term).
    calibration: for "mean", the prompts averaged over: `PromptPairs`, whose corrupt prompts are used, or tokens [n, pos]
        without padding; by default the corrupt prompts of `pairs`. Padding never counts.
    mean_per_position: one mean per position instead of one over all real tokens; needs prompts of one length.
    A circuit on the ungrouped graph of a grouped-query model is run on `model.ungrouped()`.
    Raises CircuitError for pairs without the answers that the metric needs, and when full and empty metric are equal, since
    faithfulness is then undefined.
    """
    check_type("circuit", circuit, Circuit)
    job = Evaluation(model, circuit.graph, pairs, metric, ablation, batch_size, calibration, mean_per_position)
    return job.faithfulness(circuit)


class Evaluation:
    """Everything that the evaluations of several circuits on the same pairs share."""

    def __init__(
        self,
        model: Any,
        graph: Any,
        pairs: Any,
        metric: str | MetricFunction | Metric = "logit_diff",
        ablation: str = "patching",
        batch_size: int | None = None,
        calibration: Any = None,
        mean_per_position: bool = False,
    ) -> None:
        if ablation not in ABLATIONS:
            raise CircuitError(
                f"ablation must be one of {', '.join(ABLATIONS)}, got {ablation!r}{near(str(ablation), ABLATIONS)}."
            )
        self.metric, self.ablation, self.graph = resolve_metric(metric), ablation, graph
        self.pairs = pairs
        with torch.inference_mode(False), torch.no_grad():
            self.view = _view_for(model, graph)
            check_pairs(pairs, self.metric, self.view.model.cfg)
            self._size = len(pairs) if batch_size is None else batch_size
            self._batches = list(pairs.to(self.view.device).batches(self._size))
            self._clean = [plain_run(self.view, batch.clean, batch).logits for batch in self._batches]
            self._ablations, empty = self._prepare(calibration, mean_per_position)
            self.full = self._values(self._clean)
            self.empty = self._values(empty) if empty else self.values(Circuit.empty(graph))
        self._check_range()

    def values(self, circuit: Circuit) -> Values:
        """The metric of every pair when only the circuit's edges carry clean values."""
        if circuit.graph != self.graph:
            raise CircuitError(f"the circuit is on {circuit.graph}, but the others evaluated with it are on {self.graph}.")
        with torch.inference_mode(False), torch.no_grad():
            runs = zip(self._batches, self._ablations, strict=True)
            return self._values([circuit_logits(self.view, circuit, batch, ablation) for batch, ablation in runs])

    def faithfulness(self, circuit: Circuit) -> Faithfulness:
        values = self.values(circuit)
        full, empty, mean = float(self.full.mean()), float(self.empty.mean()), float(values.mean())
        return Faithfulness(
            faithfulness=(mean - empty) / (full - empty),
            metric_circuit=mean,
            metric_full=full,
            metric_empty=empty,
            per_pair={"circuit": values, "full": self.full, "empty": self.empty},
            metric=self.metric.name,
            ablation=self.ablation,
            n_edges=circuit.n_edges,
            n_edges_total=self.graph.n_edges,
            n_pairs=len(self.pairs),
            prompts=self.pairs.source,
        )

    def _prepare(self, calibration: Any, per_position: bool) -> tuple[list[Ablation], list[Tensor]]:
        """Ablated values for each batch and, where known without a run, the logits of the empty circuit."""
        if calibration is not None and self.ablation != "mean":
            raise CircuitError(f"calibration is for mean ablation, got ablation={self.ablation!r}.")
        if self.ablation == "patching":
            runs = [plain_run(self.view, batch.corrupt, batch) for batch in self._batches]
            return [Patching(run.writes) for run in runs], [run.logits for run in runs]
        means = None
        if self.ablation == "mean":
            batches = list(_calibration(self.pairs if calibration is None else calibration, self._size, self.view.device))
            _check_positions(per_position, [reading for _, reading in batches] + self._batches)
            means = mean_terms(self.view, batches, per_position)
        return [Fixed(means, len(batch)) for batch in self._batches], []

    def _values(self, logits: list[Tensor]) -> Values:
        runs = zip(logits, self._batches, self._clean, strict=True)
        return torch.cat([self.metric(each, batch, clean) for each, batch, clean in runs])

    def _check_range(self) -> None:
        full, empty = float(self.full.mean()), float(self.empty.mean())
        room = 8 * torch.finfo(self.full.dtype).eps * max(abs(full), abs(empty), 1.0)
        if abs(full - empty) <= room:
            raise CircuitError(
                f"faithfulness is undefined: mean {self.metric.name} is {full:.6g} both for the whole model and with every edge "
                f"ablated ({self.ablation}); use prompts on which corrupting, or ablating, changes it."
            )


@dataclass(frozen=True)
class _Reading:
    """How unpadded calibration tokens are read."""

    attention_mask: Bool[Tensor, "batch pos"]
    last: Int[Tensor, " batch"]
    padded: bool = False


def _calibration(source: Any, size: int, device: torch.device) -> Iterator[tuple[Tensor, Any]]:
    if not isinstance(source, Tensor):
        yield from ((batch.corrupt, batch) for batch in source.to(device).batches(size))
        return
    if source.dim() != 2 or source.is_floating_point():
        raise CircuitError(f"calibration tokens must be whole numbers [n, pos], got {tuple(source.shape)} {source.dtype}.")
    for tokens in source.to(device).split(size):
        yield tokens, _Reading(torch.ones_like(tokens, dtype=torch.bool), torch.full_like(tokens[:, 0], tokens.shape[1] - 1))


def _check_positions(per_position: bool, readings: list[Any]) -> None:
    lengths = sorted({reading.attention_mask.shape[1] for reading in readings})
    if per_position and (len(lengths) > 1 or any(reading.padded for reading in readings)):
        raise CircuitError(f"mean_per_position needs prompts of one length without padding, got widths {lengths}; leave it out.")


def _view_for(model: Any, graph: Any) -> ModelView:
    view = ModelView.of(model)
    if graph != view.graph and graph == view.graph.ungrouped():
        view = ModelView.of(model.ungrouped())
    if graph != view.graph:
        raise CircuitError(f"the circuit is on {graph}, but the model has {view.graph}; trace it on this model.")
    return view
