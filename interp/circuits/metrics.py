"""Metrics: one number per prompt pair, read from the logits at the last token.

A metric is a name of `METRICS` or any function `(logits [n, vocab], pairs) -> [n]`. Logits arrive in at least float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..precision import widened
from .errors import CircuitError, near

Logits = Float[Tensor, "batch vocab"]
Values = Float[Tensor, " batch"]
MetricFunction = Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class Metric:
    """A named metric. function: (logits, pairs, clean logits of the whole model or None) -> values [n]."""

    name: str
    function: Callable[[Tensor, Any, Tensor | None], Tensor]
    higher_is_better: bool | None = None
    needs: tuple[str, ...] = ()
    """Fields of the pairs without which the metric has no meaning: "answers", "wrong_answers"."""

    def __call__(self, logits: Logits, pairs: Any, reference: Logits | None = None) -> Values:
        """Values per pair. Raises CircuitError when the pairs lack what the metric needs, or it returns the wrong shape."""
        self.check_pairs(pairs)
        values = self.function(widened(logits), pairs, None if reference is None else widened(reference))
        if not isinstance(values, Tensor) or values.shape != logits.shape[:1]:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise CircuitError(f"metric '{self.name}' must return one value per pair, shape ({len(logits)},), got {got}.")
        if not values.isfinite().all():
            bad = int((~values.isfinite()).nonzero()[0])
            raise CircuitError(
                f"metric '{self.name}' is {float(values[bad].detach())} for pair {bad} of its batch; check the weights."
            )
        return values

    def check_pairs(self, pairs: Any) -> None:
        """Raises CircuitError, naming the pair, where one lacks what the metric needs."""
        for field in self.needs:
            empty = ~real_ids(getattr(pairs, field)).any(1)
            if empty.any():
                word = field.replace("_", " ")
                raise CircuitError(f"metric '{self.name}' needs {word}, but pair {int(empty.nonzero()[0])} has none.")


def real_ids(ids: Int[Tensor, "batch n"]) -> Bool[Tensor, "batch n"]:
    """Which entries of padded answer ids are token ids; the others are -1."""
    return ids >= 0


def gathered(values: Logits, ids: Int[Tensor, "batch n"], missing: float) -> Float[Tensor, "batch n"]:
    """Entries of each row at the given token ids; `missing` where there is none."""
    ids = ids.to(values.device)
    return values.gather(1, ids.clamp(min=0)).masked_fill(~real_ids(ids), missing)


def mean_at(values: Logits, ids: Int[Tensor, "batch n"]) -> Values:
    """Mean of each row over the given token ids."""
    return gathered(values, ids, 0.0).sum(1) / real_ids(ids).sum(1).to(values.device)


def logit_diff(logits: Logits, pairs: Any, reference: Logits | None = None) -> Values:
    """Mean logit of the answers minus mean logit of the wrong answers."""
    return mean_at(logits, pairs.answers) - mean_at(logits, pairs.wrong_answers)


def prob_diff(logits: Logits, pairs: Any, reference: Logits | None = None) -> Values:
    """Probability of any answer minus probability of any wrong answer (Hanna et al. 2023, arXiv 2305.00586)."""
    probs = logits.softmax(-1)
    return gathered(probs, pairs.answers, 0.0).sum(1) - gathered(probs, pairs.wrong_answers, 0.0).sum(1)


def answer_prob(logits: Logits, pairs: Any, reference: Logits | None = None) -> Values:
    """Probability that the next token is one of the answers."""
    return gathered(logits.softmax(-1), pairs.answers, 0.0).sum(1)


def answer_logprob(logits: Logits, pairs: Any, reference: Logits | None = None) -> Values:
    """Log probability, in nats, that the next token is one of the answers."""
    return gathered(logits.log_softmax(-1), pairs.answers, -torch.inf).logsumexp(1)


def answer_logit(logits: Logits, pairs: Any, reference: Logits | None = None) -> Values:
    """Mean logit of the answers."""
    return mean_at(logits, pairs.answers)


def kl(logits: Logits, pairs: Any, reference: Logits | None = None) -> Values:
    """KL divergence, in nats, from the whole model's own clean output to this output; 0 where they agree.

    Written so that its gradient at the clean output is exactly 0 and not a rounding error.
    """
    if reference is None:
        raise CircuitError("metric 'kl' needs the logits of the whole model on the clean prompts, got none.")
    clean = (reference - reference.logsumexp(-1, keepdim=True)).exp()
    entropy = torch.special.entr(clean).sum(-1)
    return logits.logsumexp(-1) - (clean * logits).sum(-1) - entropy


METRICS: dict[str, Metric] = {
    "logit_diff": Metric("logit_diff", logit_diff, True, ("answers", "wrong_answers")),
    "prob_diff": Metric("prob_diff", prob_diff, True, ("answers", "wrong_answers")),
    "answer_logit": Metric("answer_logit", answer_logit, True, ("answers",)),
    "answer_prob": Metric("answer_prob", answer_prob, True, ("answers",)),
    "answer_logprob": Metric("answer_logprob", answer_logprob, True, ("answers",)),
    "kl": Metric("kl", kl, False),
}
"""Metrics by name. All but `kl` are higher for a better answer."""


def resolve_metric(metric: str | MetricFunction | Metric) -> Metric:
    """A metric by name, or one made from a function. Raises CircuitError, with near matches, for an unknown name."""
    if isinstance(metric, Metric):
        return metric
    if callable(metric):
        name = getattr(metric, "__name__", type(metric).__name__)
        function = metric
        return Metric("custom" if name == "<lambda>" else name, lambda logits, pairs, reference: function(logits, pairs))
    if metric not in METRICS:
        raise CircuitError(
            f"metric must be one of {', '.join(METRICS)} or a function, got {metric!r}{near(str(metric), METRICS)}."
        )
    return METRICS[metric]
