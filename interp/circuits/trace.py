"""`trace_circuit`: score every edge of a model on a set of clean and corrupt prompts."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import whole_number
from ..protocol import model_name
from ..run import progress as progress_bar
from .access import ModelView
from .attribution import BatchScores, eap_batch, eap_ig_batch, path_points
from .checks import check_differs, check_pairs
from .errors import CircuitError, near
from .exact import exact_batch, wanted_edges
from .metrics import Metric, MetricFunction, resolve_metric
from .scores import EdgeScores, ScoreRecord

logger = logging.getLogger(__name__)
METHODS = ("eap", "eap-ig", "exact")


def trace_circuit(
    model: Any,
    pairs: Any,
    *,
    metric: str | MetricFunction | Metric = "logit_diff",
    method: str = "eap",
    steps: int = 5,
    rule: str = "midpoint",
    ungrouped: bool = False,
    batch_size: int | None = None,
    readers: Iterable[str] | None = None,
    edges: Iterable[str] | None = None,
    progress: bool | None = None,
) -> EdgeScores:
    """Score every edge by how much moving it from its clean to its corrupt value changes the metric.

    model: a `models.HookedTransformer`. pairs: `interp.prompts.PromptPairs`.
    metric: a name of `METRICS`, or a function (logits [n, vocab] at each pair's last token, pairs) -> [n].
    method: "eap" (edge attribution patching: one gradient, first-order), "eap-ig" (gradients averaged over `steps` points
        between the corrupt and the clean input, placed by `rule`: "midpoint", "left" or "right" ends), or "exact" (patch each
        edge and run the rest of the model: one partial pass per edge).
    ungrouped: give every query head its own key and value first, as tools without grouped-query attention do.
    batch_size: pairs per pass, all at once by default; scores do not depend on it, nor on padding, except where positions are
        rotary with `dynamic` scaling: its angles are set by the longest prompt of a batch.
    readers, edges: with method "exact", patch only edges into these readers, or these edges; others score 0.
    progress: show a bar; None shows one on a terminal.

    Returns signed scores: corrupt minus clean, summed over positions, averaged over pairs. Nothing random is involved, and the
    model, its hooks, gradient flags and the random state are left as found.
    In post-norm blocks every norm rescales what earlier writers put into the stream. There a writer's term takes each run's own
    norm scales as given, so a writer's outgoing EAP scores do not sum to its attribution-patching score, and the input's
    outgoing EAP-IG scores not to the change of the metric, however many the steps; the record then says `additive=False`.
    A mixer whose queries, keys and values are not read apart, such as a recurrent one, has one reader <x>; `record.note` and the
    log say in which layers.
    Raises CircuitError for a model without logits, for an unknown metric or method, for edges that do not exist, for pairs
    without the answers that the metric needs, when no corrupt prompt differs from its clean one, and when all scores of a
    gradient method are 0.
    """
    if method not in METHODS:
        raise CircuitError(f"method must be one of {', '.join(METHODS)}, got {method!r}{near(str(method), METHODS)}.")
    if method != "exact" and (readers is not None or edges is not None):
        raise CircuitError(f"readers and edges choose what method 'exact' patches; method {method!r} scores all edges at once.")
    path_points(steps, rule)
    view, resolved = ModelView.of(model), resolve_metric(metric)
    if view.note:
        logger.info("trace_circuit: %s", view.note)
    check_pairs(pairs, resolved, model.cfg)
    check_differs(pairs)
    with torch.inference_mode(False), torch.no_grad():
        job = _Job(ModelView.of(model.ungrouped()) if ungrouped else view, pairs, resolved, batch_size)
        if method == "exact":
            totals = job.exact(readers, edges, progress)
        elif method == "eap-ig":
            totals = job.gradient(lambda batch: eap_ig_batch(job.view, batch, job.metric, steps, rule), progress)
        else:
            totals = job.gradient(lambda batch: eap_batch(job.view, batch, job.metric), progress)
    integration = {"steps": whole_number(steps), "rule": rule} if method == "eap-ig" else {}
    record = job.record(totals, method=method, ungrouped=ungrouped, **integration)
    return EdgeScores(job.view.graph, (totals.total / len(pairs)).cpu(), record)


@dataclass(frozen=True)
class _Job:
    """One call of `trace_circuit`: the same model, pairs and metric whatever the method."""

    view: ModelView
    pairs: Any
    metric: Metric
    batch_size: int | None

    def batches(self) -> Iterator[Any]:
        return self.pairs.to(self.view.device).batches(len(self.pairs) if self.batch_size is None else self.batch_size)

    def gradient(self, score: Callable[[Any], BatchScores], progress: bool | None) -> BatchScores:
        batches = list(self.batches())
        totals = _merged(score(batch) for batch in progress_bar(batches, description="edges", enabled=progress))
        self._refuse_no_signal(totals)
        return totals

    def _refuse_no_signal(self, totals: BatchScores) -> None:
        """Scores that are 0, or rounding errors beside how much the metric changes, say nothing and look like a result."""
        change = float((totals.corrupt - totals.clean).abs().sum())
        if float(totals.total.abs().max()) > 1000 * torch.finfo(totals.total.dtype).eps * change:
            return
        raise CircuitError(
            f"every edge scores 0, because metric '{self.metric.name}' has no gradient at these prompts (a distance to the "
            f"model's own output is at its minimum there); use method 'eap-ig' or 'exact', or another metric."
        )

    def exact(self, readers: Iterable[str] | None, edges: Iterable[str] | None, progress: bool | None) -> BatchScores:
        wanted = wanted_edges(self.view.graph, readers, edges)
        batches = list(self.batches())
        with progress_bar(total=int(wanted.sum()) * len(batches), description="edges", enabled=progress) as bar:
            return _merged(exact_batch(self.view, batch, self.metric, wanted, bar.update) for batch in batches)

    def record(self, totals: BatchScores, **fields: Any) -> ScoreRecord:
        cfg = self.view.model.cfg
        return ScoreRecord(
            metric=self.metric.name,
            higher_is_better=self.metric.higher_is_better,
            n_pairs=len(self.pairs),
            metric_clean=float(totals.clean.mean()),
            metric_corrupt=float(totals.corrupt.mean()),
            model=model_name(self.view.model),
            d_model=cfg.d_model,
            dtype=str(self.view.model.blocks[0].attn.W_O.dtype).removeprefix("torch."),
            prepend_bos=self.pairs.prepend_bos,
            prompts=self.pairs.record(),
            additive=not self.view.rescales,
            note=self.view.note,
            **fields,
        )


def _merged(batches: Iterable[BatchScores]) -> BatchScores:
    return functools.reduce(
        lambda a, b: BatchScores(a.total + b.total, torch.cat([a.clean, b.clean]), torch.cat([a.corrupt, b.corrupt])),
        batches,
    )
