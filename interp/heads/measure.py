"""One forward pass, measured layer by layer: scores and pattern are reduced to sums per head inside the hooks and let go.

No more than one layer's [query, key] tensors exist at a time. Sums are kept in float64 with the number of rows they run over, so
that the order and size of batches do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..precision import widened
from ..protocol import has_logits, hook_names, is_causal
from . import metrics
from .copying import CopyingMeter, can_measure_copying
from .layers import n_heads_of, signed_pattern
from .patterns import first_position, target_mass
from .sequences import Batch

# Bfloat16 patterns differ from the softmax of their scores by up to a hundredth.
SOFTMAX_TOLERANCE = 0.02
DISTRIBUTION_COLUMNS = (
    *("entropy", "effective_tokens", "normalized_entropy", "normalized_entropy_no_first", "first_only_rows"),
    *("logit_std", "freezing_ratio", "uniformity_error", "linearity_error"),
)
"""What is measured of rows that are distributions over keys, and of no others."""


@dataclass(frozen=True)
class Tally:
    """A sum over rows and how many rows it runs over."""

    total: Float[Tensor, "*axes"]
    count: Int[Tensor, "*axes"]

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.total + other.total, self.count + other.count)

    def mean(self) -> Float[Tensor, "*axes"]:
        """NaN where there is no row."""
        return self.total / self.count

    @classmethod
    def of_rows(cls, values: Float[Tensor, "batch head query"], counted: Bool[Tensor, "batch _ query"]) -> Tally:
        """Sum per head over the rows that count."""
        counted = counted.expand_as(values)
        return cls(values.double().where(counted, 0.0).sum((0, 2)).cpu(), counted.sum((0, 2)).cpu())

    @classmethod
    def nothing(cls, n_heads: int) -> Tally:
        """No row of any head, so that means are NaN."""
        return cls(torch.zeros(n_heads, dtype=torch.float64), torch.zeros(n_heads, dtype=torch.long))

    @classmethod
    def stack(cls, tallies: Iterable[Tally]) -> Tally:
        """Tallies of several layers as one with the axes [layer, head]; heads that a layer lacks have no row."""
        tallies = list(tallies)
        most = max(len(tally.total) for tally in tallies)
        padded = [[F.pad(part, (0, most - len(part))) for part in (tally.total, tally.count)] for tally in tallies]
        return cls(*(torch.stack(parts) for parts in zip(*padded, strict=True)))


@dataclass
class Measurement:
    """What one batch, or several added up, gave: tallies by column [layer, head], and the losses of both halves."""

    columns: dict[str, Tally]
    logits_from: str
    """Where logit statistics come from: "scores", or "pattern" (ln p) for models whose score hook holds something else."""
    losses: dict[str, Tally] = field(default_factory=dict)

    def __add__(self, other: Measurement) -> Measurement:
        source = self.logits_from if self.logits_from == other.logits_from else "pattern"
        columns = {name: tally + other.columns[name] for name, tally in self.columns.items()}
        return Measurement(columns, source, {name: tally + other.losses[name] for name, tally in self.losses.items()})


@torch.no_grad()
def measure(model: Any, batch: Batch, layers: tuple[int, ...], without: Collection[int] = ()) -> Measurement:
    """Run the model once on a batch and reduce every head of these layers to tallies.

    without: those of them that have no pattern; their tallies run over no row.
    """
    rows, layers = layers, tuple(layer for layer in layers if layer not in without)
    device = _device(model)
    batch = Batch(batch.tokens.to(device), batch.kept.to(device), batch.bos_token_id, batch.distance)
    targets = batch.targets()
    meter = CopyingMeter(model, layers, batch.tokens, targets["induction"]) if can_measure_copying(model, layers) else None
    reducer = LayerReducer(batch, targets, is_causal(model))
    hooks = reducer.hooks(model, layers) + ([] if meter is None else meter.hooks())
    mask = {"attention_mask": batch.kept.long()} if batch.is_padded else {}
    logits = model.run_with_hooks(batch.tokens, fwd_hooks=hooks, **mask)
    tallies = reducer.tallies
    if meter is not None:
        found = _copying_tallies(meter, layers, targets["induction"])
        tallies = {layer: tallies[layer] | found[layer] for layer in layers}
    empty = {layer: Tally.nothing(n_heads_of(model, layer)) for layer in without}
    columns = {
        name: Tally.stack(empty[layer] if layer in empty else tallies[layer][name] for layer in rows)
        for name in tallies[layers[0]]
    }
    return Measurement(columns, reducer.logits_from, half_losses(model, logits, batch))


def _device(model: Any) -> torch.device:
    parameter = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    return torch.device("cpu") if parameter is None else parameter.device


class LayerReducer:
    """Hooks that reduce each layer's scores and pattern as soon as both have been seen."""

    def __init__(self, batch: Batch, targets: dict[str, Bool[Tensor, "batch query key"]], causal: bool):
        self.batch, self.targets, self.causal = batch, targets, causal
        self.tallies: dict[int, dict[str, Tally]] = {}
        self.scores_agree: dict[int, bool] = {}
        self._scores: Tensor | None = None

    @property
    def logits_from(self) -> str:
        """ "scores", or "pattern" where a layer's scores do not explain its pattern."""
        return "scores" if all(self.scores_agree.values()) else "pattern"

    def hooks(self, model: Any, layers: tuple[int, ...]) -> list[tuple[str, Any]]:
        """Forward hooks on scores and pattern of these layers."""
        names, hooks = hook_names(model), []
        for layer in layers:
            pattern, scores = f"blocks.{layer}.attn.hook_pattern", f"blocks.{layer}.attn.hook_attn_scores"
            if scores in names:
                hooks.append((scores, self._keep_scores))
            selects = f"blocks.{layer}.attn.hook_selection" in names
            hooks.append((pattern, self._reduce(layer, signed_pattern(model, layer), selects)))
        return hooks

    def _keep_scores(self, scores: Tensor, hook: Any) -> None:
        self._scores = scores.detach()

    def _reduce(self, layer: int, signed: bool, selects: bool) -> Any:
        """selects: which keys a query sees is for the layer to choose, so a target that it does not choose is one it misses."""

        def reduce(pattern: Tensor, hook: Any) -> None:
            scores, self._scores = self._scores, None
            pattern = widened(pattern.detach())
            agree = scores is not None and not signed and scores_explain(scores, pattern)
            visible = self._visible(scores, pattern, agree)
            reachable = self._visible(None, pattern, agree=False) if selects else visible
            tallies = mass_tallies(pattern, reachable, self.targets)
            if signed:
                self.tallies[layer] = tallies | {name: Tally.nothing(pattern.shape[1]) for name in DISTRIBUTION_COLUMNS}
                return
            self.scores_agree[layer] = agree
            logits = widened(scores) if agree and scores is not None else _log_pattern(pattern, visible)
            self.tallies[layer] = tallies | distribution_tallies(pattern, logits, visible, self.batch)

        return reduce

    def _visible(self, scores: Tensor | None, pattern: Tensor, agree: bool) -> Tensor:
        """Keys that each query may attend, real tokens only: what the scores leave unmasked, and, where they do not explain the
        pattern, also what causality allows."""
        kept = self.batch.kept[:, None, :, None] & self.batch.kept[:, None, None, :]
        visible = kept.expand_as(pattern)
        if not agree and self.causal:
            visible = visible.tril()
        if scores is None or scores.shape != pattern.shape:
            return visible
        unmasked = metrics.visible_keys(scores)
        weight_is_inside = not bool((pattern.masked_fill(unmasked, 0.0) * kept).any())
        return visible & unmasked if agree or weight_is_inside else visible


def scores_explain(scores: Float[Tensor, "batch head query key"], pattern: Float[Tensor, "batch head query key"]) -> bool:
    """Whether the pattern is the softmax of the scores, tried on the first sequence's last row with any attention.

    Some models keep part of the softmax for a learned sink; rows are compared after normalising.
    """
    if scores.shape != pattern.shape:
        return False
    last = int(pattern[0].sum((0, 2)).nonzero().max()) if bool((pattern[0] > 0).any()) else 0
    row = widened(scores[0, :, last]).softmax(-1)
    return bool((row - metrics.normalised(pattern[0, :, last])).abs().nan_to_num(0.0).max() < SOFTMAX_TOLERANCE)


def _log_pattern(pattern: Tensor, visible: Tensor) -> Tensor:
    """ln p, which differs from the scores by a constant per row; rows where a visible key underflowed to 0 become NaN."""
    underflowed = ((pattern == 0) & visible).any(-1, keepdim=True)
    return pattern.log().masked_fill(underflowed, math.nan)


def mass_tallies(
    pattern: Float[Tensor, "batch head query key"],
    visible: Bool[Tensor, "batch head query key"],
    targets: dict[str, Bool[Tensor, "batch query key"]],
) -> dict[str, Tally]:
    """Weight on the targets, the same for an even head, and the sum of whole rows, per head. Padding enters nowhere."""
    tallies = {}
    for name, mask in targets.items():
        mass = target_mass(pattern, mask, visible)
        tallies[name] = Tally.of_rows(mass.mass, mass.has_target)
        tallies[f"{name}_baseline"] = Tally.of_rows(mass.uniform, mass.has_target)
    row_sum = pattern.masked_fill(~visible, 0.0).sum(-1)
    return tallies | {"row_sum": Tally.of_rows(row_sum, visible.any(-1))}


def distribution_tallies(
    pattern: Float[Tensor, "batch head query key"],
    logits: Float[Tensor, "batch head query key"],
    visible: Bool[Tensor, "batch head query key"],
    batch: Batch,
) -> dict[str, Tally]:
    """`DISTRIBUTION_COLUMNS` of one layer, per head. Padded rows and keys enter neither sums nor counts."""
    n_keys, inside = visible.sum(-1), pattern.masked_fill(~visible, 0.0)
    tallies = _entropy_tallies(inside, n_keys) | _entropy_without_first(inside, visible, batch)
    return tallies | _logit_tallies(inside, logits, visible, n_keys)


def _entropy_tallies(inside: Tensor, n_keys: Tensor) -> dict[str, Tally]:
    entropy = metrics.entropy(inside)
    return {
        "entropy": Tally.of_rows(entropy, n_keys >= 1),
        "effective_tokens": Tally.of_rows(entropy.exp(), n_keys >= 1),
        "normalized_entropy": Tally.of_rows(metrics.normalized_entropy(inside, n_keys), n_keys >= 2),
    }


def _entropy_without_first(inside: Tensor, visible: Tensor, batch: Batch) -> dict[str, Tally]:
    """Normalised entropy over the keys after the first real token, and the share of rows with nothing left to look at."""
    positions = torch.arange(visible.shape[-1], device=visible.device)
    first = (positions == first_position(batch.kept)[:, None])[:, None, None, :]
    n_rest = (visible & ~first).sum(-1)
    values = metrics.normalized_entropy(metrics.without_keys(inside, first), n_rest)
    emptied = values.isnan()
    return {
        "normalized_entropy_no_first": Tally.of_rows(values, (n_rest >= 2) & ~emptied),
        "first_only_rows": Tally.of_rows(emptied.float(), n_rest >= 2),
    }


def _logit_tallies(inside: Tensor, logits: Tensor, visible: Tensor, n_keys: Tensor) -> dict[str, Tally]:
    """Spread of the scores and distance from uniform and first-order attention, over rows with a choice of keys."""
    std = metrics.logit_std(logits, visible)
    columns = {
        "logit_std": std,
        "freezing_ratio": metrics.freezing_ratio(std, n_keys),
        "uniformity_error": metrics.uniformity_error(inside, visible),
        "linearity_error": metrics.linearity_error(logits, visible),
    }
    return {name: Tally.of_rows(values, (n_keys >= 2) & ~values.isnan()) for name, values in columns.items()}


def _copying_tallies(
    meter: CopyingMeter, layers: tuple[int, ...], targets: Bool[Tensor, "batch query key"]
) -> dict[int, dict[str, Tally]]:
    """By layer, the copying effect and its square, for the mean and its standard error, over rows with an induction target."""
    counted = targets.any(-1)[:, None]
    effects = {layer: meter.effects(layer) for layer in layers}
    return {
        layer: {
            "copying_effect": Tally.of_rows(effect, counted),
            "copying_effect_squared": Tally.of_rows(effect.double() ** 2, counted),
        }
        for layer, effect in effects.items()
    }


def half_losses(model: Any, logits: Tensor, batch: Batch) -> dict[str, Tally]:
    """Next-token loss in nats inside the first and inside the second occurrence of the repeated segment.

    Both run over the same tokens, the segment's second to last: the ones that the second time can be copied. Empty for given
    tokens and for models whose logits do not predict the next token.
    """
    n = batch.distance
    if n is None or not (is_causal(model) and has_logits(model)) or logits.shape[-1] != model.cfg.d_vocab:
        return {}
    start = batch.tokens.shape[1] - 2 * n
    losses = {}
    for name, begin in (("first", start), ("second", start + n)):
        inside = slice(begin, begin + n - 1)
        predicted = batch.tokens[:, begin + 1 : begin + n]
        # Row by row: a float32 copy of all logits may not fit beside them.
        rows = zip(logits, predicted, strict=True)
        loss = torch.cat([F.cross_entropy(row[inside].float(), token, reduction="none") for row, token in rows]).double()
        losses[name] = Tally(loss.sum().cpu(), torch.tensor(loss.numel()))
    return losses
