"""Edge attribution patching (EAP) and its integrated-gradients form, at the cost of a few passes.

    score(u -> v) = mean over pairs of  sum over positions  (a'_u - a_u) . d metric / d x_v

a_u is what writer u puts into the residual stream on the clean prompt, a'_u on the corrupt one, x_v reader v's own input
before its norm. EAP (Syed et al. 2023, arXiv 2310.10348) takes the gradient at the clean prompt: one forward pass of the
corrupt prompts and one forward and backward pass of the clean ones. EAP-IG over inputs (Hanna et al. 2024, arXiv 2403.17806)
averages it along the line from the corrupt to the clean input.

Differences are kept as z [head, d_head] and expanded through W_O, gradients as those of q, k and v and pulled back through the
weights and the norm (`gradients`), both for a bounded slice of the tokens at a time, so no [token, head, d_model] tensor of the
whole batch exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import whole_number
from .access import ModelView
from .contributions import Writes, walk_difference
from .errors import CircuitError
from .gradients import ReaderGradients
from .metrics import Metric, Values
from .runs import gradient_run, plain_run

RULES = ("midpoint", "left", "right")
BUFFER_BYTES = 32 * 2**20
"""Room for the expanded differences [writers, tokens, d_model]; sets how many tokens are contracted at a time."""


@dataclass(frozen=True)
class BatchScores:
    """Scores of one batch, summed over its pairs, and the metric per pair on either prompt."""

    total: Float[Tensor, "writers readers"]
    clean: Values
    corrupt: Values


def eap_batch(view: ModelView, pairs: Any, metric: Metric) -> BatchScores:
    """EAP of one batch of pairs."""
    corrupt = plain_run(view, pairs.corrupt, pairs)
    clean = gradient_run(view, pairs, metric)
    total = contract(view, clean.writes, corrupt.writes, clean.gradients)
    return BatchScores(total, clean.values, metric(corrupt.logits, pairs, clean.logits))


def eap_ig_batch(view: ModelView, pairs: Any, metric: Metric, steps: int, rule: str) -> BatchScores:
    """EAP-IG over inputs of one batch of pairs."""
    corrupt, clean = plain_run(view, pairs.corrupt, pairs), plain_run(view, pairs.clean, pairs)
    total = torch.zeros(len(view.graph.writers), len(view.graph.readers), dtype=view.dtype, device=view.device)
    for t in path_points(steps, rule):
        start = corrupt.inputs + t * (clean.inputs - corrupt.inputs)
        step = gradient_run(view, pairs, metric, clean.logits, start)
        total += contract(view, clean.writes, corrupt.writes, step.gradients) / steps
    values = [metric(run.logits, pairs, clean.logits) for run in (clean, corrupt)]
    return BatchScores(total, values[0], values[1])


def path_points(steps: int, rule: str) -> list[float]:
    """Where on the path from corrupt (0) to clean (1) gradients are taken: middles, left ends or right ends of equal steps."""
    if (n := whole_number(steps)) is None or n < 1:
        raise CircuitError(f"steps must be a whole number of at least 1, got {steps!r}.")
    if rule not in RULES:
        raise CircuitError(f"rule must be one of {', '.join(RULES)}, got {rule!r}.")
    offset = {"midpoint": 0.5, "left": 0.0, "right": 1.0}[rule]
    return [(k + offset) / n for k in range(n)]


def contract(view: ModelView, clean: Writes, corrupt: Writes, gradients: ReaderGradients) -> Float[Tensor, "writers readers"]:
    """sum over tokens of D_u . g_v for every edge."""
    graph = view.graph
    total = torch.zeros(len(graph.writers), len(graph.readers), dtype=view.dtype, device=view.device)
    for tokens in token_slices(view, clean.n_tokens):
        for stage in walk_difference(view, clean.part(tokens), corrupt.part(tokens)):
            readers = graph.inputs(stage.layer, stage.kind)
            gradient = gradients.at(stage.layer, stage.kind, tokens)
            total[: len(stage.terms), readers] += stage.terms.flatten(1) @ gradient.flatten(1).T
    return total


def token_slices(view: ModelView, n_tokens: int) -> Iterator[slice]:
    """Slices of the tokens whose expanded differences fit the buffer."""
    per_token = len(view.graph.writers) * view.model.cfg.d_model * view.dtype.itemsize
    size = max(1, BUFFER_BYTES // per_token)
    return (slice(start, start + size) for start in range(0, n_tokens, size))
