"""From measured columns to labels: cut the tables by head, ablate the heads whose copying is open, apply the rules of `roles`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .causal import Head, copying_ablations
from .copying import can_measure_copying
from .roles import HeadLabel, Measured, Thresholds, copying, head_labels, matches_prefixes
from .sequences import Sequences


@dataclass(frozen=True)
class Evidence:
    """What labels rest on, for all measured heads."""

    layers: tuple[int, ...]
    scores: tuple[str, ...]
    distances: tuple[int, ...]
    """Empty for given tokens."""
    by_distance: Float[Tensor, "score distance layer head"]
    baselines: Float[Tensor, "score layer head"]
    columns: dict[str, Float[Tensor, "layer head"]]
    """The copying columns, by name."""
    nameable: Bool[Tensor, "layer head"]
    """Heads whose pattern is a share of attention, which labels speak of: no weight negative, no row over 1."""

    def heads(self) -> list[Head]:
        """All heads that may be labelled, in order."""
        return [(self.layers[row], head) for row, head in self.nameable.nonzero().tolist()]

    def of(self, head: Head) -> Measured:
        """The numbers of one head."""
        row, column = self.layers.index(head[0]), head[1]
        by_group = {score: tuple(self.by_distance[place, :, row, column].tolist()) for place, score in enumerate(self.scores)}
        baseline = {score: float(self.baselines[place, row, column]) for place, score in enumerate(self.scores)}
        copying = {name: float(values[row, column]) for name, values in self.columns.items()}
        return Measured(by_group, baseline, self.distances, **copying)

    def with_ablations(self, model: Any, sequences: Sequences, thresholds: Thresholds) -> Evidence:
        """The same, with the effect of ablating each head that matches prefixes and has no clear direct effect.

        Uses the longest distance, one forward pass per head. Nothing is ablated on given tokens.
        """
        blank = torch.full_like(self.baselines[0], math.nan)
        columns = {"ablation_effect": blank, "ablation_effect_error": blank.clone()}
        layers = tuple(dict.fromkeys(layer for layer, _ in self.heads()))
        if sequences.distances and layers and can_measure_copying(model, layers):
            batch = max(sequences.batches, key=lambda batch: batch.distance or 0)
            for (layer, head), effect in copying_ablations(model, batch, self._undecided(thresholds)).items():
                row = self.layers.index(layer)
                columns["ablation_effect"][row, head] = effect.mean
                columns["ablation_effect_error"][row, head] = effect.error
        return replace(self, columns=self.columns | columns)

    def _undecided(self, thresholds: Thresholds) -> list[Head]:
        measured = {head: self.of(head) for head in self.heads()}
        return [head for head, m in measured.items() if matches_prefixes(m, thresholds) and not copying(m, thresholds).sign]

    def labels(self, thresholds: Thresholds) -> tuple[HeadLabel, ...]:
        """The labels of every head, in order."""
        return tuple(label for head in self.heads() for label in head_labels(*head, self.of(head), thresholds))
