"""What circuit analyses are given, checked before any model runs."""

from __future__ import annotations

from typing import Any

import torch

from ..prompts import PromptPairs
from ..protocol import n_logits
from .circuit import Circuit
from .errors import CircuitError
from .metrics import Metric
from .scores import EdgeScores

WANTED: dict[type, str] = {
    PromptPairs: "make them with PromptPairs.from_prompts(prompts, model)",
    Circuit: "choose one with select(scores, top=...) or name its edges with Circuit.from_edges(graph, names)",
    EdgeScores: "make them with trace_circuit(model, pairs)",
}
"""How to get each kind of argument."""


def check_type(name: str, value: Any, wanted: type) -> None:
    """Raises CircuitError, with the way to get one, where an argument is of another kind."""
    if not isinstance(value, wanted):
        raise CircuitError(f"{name} must be of type {wanted.__name__}, got {type(value).__name__}; {WANTED[wanted]}.")


def check_pairs(pairs: Any, metric: Metric, cfg: Any) -> None:
    """Raises CircuitError, naming the pair, for pairs that the metric or the model cannot use."""
    check_type("pairs", pairs, PromptPairs)
    if not len(pairs):
        raise CircuitError("pairs is empty; at least one clean/corrupt pair is needed.")
    metric.check_pairs(pairs)
    for field in ("answers", "wrong_answers"):
        outside = (ids := getattr(pairs, field)) >= n_logits(cfg)
        if outside.any():
            pair = int(outside.any(1).nonzero()[0])
            raise CircuitError(
                f"pair {pair}, {field} has token id {int(ids[pair][outside[pair]][0])}, outside the model's logits "
                f"0..{n_logits(cfg) - 1}; make the pairs for this model."
            )


def check_differs(pairs: PromptPairs) -> None:
    """Raises CircuitError where no clean prompt differs from its corrupt one, so that there is nothing to trace."""
    if torch.equal(pairs.clean[pairs.attention_mask], pairs.corrupt[pairs.attention_mask]):
        raise CircuitError(
            "every edge scores 0, because clean and corrupt prompts are the same; corrupt what the answer hangs on."
        )
