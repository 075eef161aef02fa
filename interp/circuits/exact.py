"""Exact edge patching: change what one reader reads by one writer's difference, recompute everything after it.

    effect(u -> v) = mean over pairs of  metric(clean run with x_v <- x_v + a'_u - a_u)  -  metric(clean run)

Only reader v sees the change at first; its block and all later ones are recomputed, norms and attention patterns included.
Costs one partial forward pass per edge and pair, so it is for small models, for a chosen few readers or edges, and as the
yardstick of the gradient methods. Runs start at the reader's layer, many writers in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .access import ModelView
from .attribution import BatchScores
from .contributions import Stage, walk_difference
from .graph import Graph
from .metrics import Metric
from .runs import Run, padding_mask, plain_run, scattered

TOKENS_PER_RUN = 4096
"""Tokens of the sequences stacked into one forward pass."""


def wanted_edges(graph: Graph, readers: Iterable[str] | None, edges: Iterable[str] | None) -> Bool[Tensor, "writers readers"]:
    """The edges to patch: all, those into the named readers, or those named."""
    if readers is None and edges is None:
        return graph.allowed
    mask = torch.zeros_like(graph.allowed)
    for name in readers or ():
        mask[:, graph.reader(name)] = True
    for name in edges or ():
        mask[graph.edge(name)] = True
    return mask & graph.allowed


def exact_batch(
    view: ModelView, pairs: Any, metric: Metric, wanted: Bool[Tensor, "writers readers"], done: Callable[[int], object]
) -> BatchScores:
    """Exact effects of the wanted edges for one batch of pairs; `done` is told how many edges each run covered."""
    corrupt, clean = plain_run(view, pairs.corrupt, pairs), plain_run(view, pairs.clean, pairs)
    values = metric(clean.logits, pairs, clean.logits)
    total = torch.zeros(wanted.shape, dtype=view.dtype, device=view.device)
    patcher = Patcher(view, pairs, clean)
    with torch.no_grad():
        for stage in walk_difference(view, clean.writes, corrupt.writes):
            for kind in view.graph.kinds(stage.layer, stage.kind):
                readers = view.graph.inputs(stage.layer, kind)
                for chunk in _chunks(stage, wanted[: len(stage.terms), readers], pairs, done):
                    for (writer, index), logits in zip(chunk.tolist(), patcher.logits(stage, kind, chunk), strict=True):
                        effects = metric(logits, pairs, clean.logits) - values
                        total[writer, readers.start + index] = effects.sum()
                    done(len(chunk))
    return BatchScores(total, values, metric(corrupt.logits, pairs, clean.logits))


def _chunks(stage: Stage, wanted: Bool[Tensor, "writers readers"], pairs: Any, done: Callable[[int], object]) -> list[Tensor]:
    """Edges (writer, reader within its kind) to patch in one run each. A writer that does not differ has no effect and no run."""
    differs = stage.terms.flatten(1).any(1).to(wanted.device)
    edges = (wanted & differs[:, None]).nonzero()
    done(int(wanted.sum()) - len(edges))
    return list(edges.split(max(1, TOKENS_PER_RUN // pairs.clean.numel()))) if len(edges) else []


@dataclass(frozen=True)
class Patcher:
    """Runs the model from a reader's layer with that reader's input changed, several edges in one batch."""

    view: ModelView
    pairs: Any
    clean: Run

    def logits(self, stage: Stage, kind: str, edges: Tensor) -> Float[Tensor, "edges batch vocab"]:
        """Logits at each pair's last token for edges [edges, 2] = (writer, reader's index within its kind)."""
        n = len(edges)
        change = self._placed(stage.terms[edges[:, 0]])
        if kind == "logits":
            final = self._stacked(self.clean.final, n) + change.to(self.clean.final.dtype)
        else:
            final = self._run_from(stage.layer, kind, edges[:, 1], change)
        rows = torch.arange(len(final))
        last = self.pairs.last.repeat(n)
        return self.view.model.unembed_resid(final[rows, last][:, None])[:, 0].unflatten(0, (n, -1))

    def _run_from(self, layer: int, kind: str, indices: Tensor, change: Float[Tensor, "rows pos d_model"]) -> Tensor:
        """The last stream with the readers' inputs changed, from the first layer that must be computed again."""
        start = self.view.graph.restart(layer)
        rows = torch.arange(len(change))
        heads = indices.repeat_interleave(len(self.pairs))

        def add(tensor: Tensor, hook: Any) -> Tensor:
            change_here = change.to(tensor.dtype)
            if kind in ("mlp", "x"):
                return tensor + change_here
            tensor[rows, :, heads] += change_here
            return tensor

        n = len(indices)
        mask = padding_mask(self.pairs)
        with self.view.model.hooks(fwd_hooks=[(self.view.reader_hook(layer, kind), add)]):
            return self.view.model(
                self._stacked(self.clean.streams[start], n),
                attention_mask=None if mask is None else self._stacked(mask, n),
                start_at_layer=start,
                stop_at_layer=self.view.graph.n_layers,
            )

    def _stacked(self, x: Tensor, n: int) -> Tensor:
        """The batch n times over."""
        return x.repeat(n, *(1 for _ in x.shape[1:]))

    def _placed(self, terms: Float[Tensor, "edges tokens d_model"]) -> Float[Tensor, "rows pos d_model"]:
        """Differences of real tokens at their places, 0 at padding; rows are edges by pairs."""
        return scattered(terms.transpose(0, 1), self.pairs).movedim(2, 0).flatten(0, 1)
