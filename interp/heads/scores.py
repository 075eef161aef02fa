"""`head_scores`: what every head of a model attends, how sharply, and what to call it.

By default heads are measured on random tokens that occur twice, [BOS] r r, at several lengths of r. Such text has no meaning
and no statistics to know, so what a head does on it, it does by matching tokens or by position. Costs about two forward passes
per distance, and one for each head that matches prefixes but does not itself raise the logit of what it finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import InterpError, WeightsError, whole_numbers
from ..protocol import HookedModel, model_name
from ..run import progress as progress_bar
from .labelling import Evidence
from .layers import LeftOut, log_left_out, mixer_of, n_heads_of, signed_pattern, unmeasurable
from .measure import Measurement, measure
from .patterns import TARGETS
from .roles import HeadLabel, Thresholds
from .scores_result import COLUMNS, HeadScores
from .sequences import Sequences, given_sequences, repeated_sequences
from .weights import copying_scores

LARGEST_ROW = 1.02
"""Rows of attention that sum to more, bfloat16 rounding allowed for, are no shares of it, and labels do not apply."""


def head_scores(
    model: HookedModel,
    tokens: Any = None,
    *,
    distances: Sequence[int] = (20, 35, 50),
    batch: int = 4,
    seed: int = 0,
    prepend_bos: bool | None = None,
    attention_mask: Tensor | None = None,
    layers: Sequence[int] | None = None,
    progress: bool | None = None,
    thresholds: Thresholds | None = None,
) -> HeadScores:
    """Scores, sharpness and labels of every head.

    model: a `HookedTransformer`, or anything that fits `interp.protocol.HookedModel`; left as it was found.
    tokens: None for repeated random tokens; else text, or ids [pos] or [batch, pos]. Scores whose target never occurs in them
        are NaN. Roles that need several distances get the weaker label "prefix-matching".
    distances: tokens between a token and its repetition. Where the largest does not fit the model's context or vocabulary, all
        are scaled down together; the result says what was used.
    batch: random sequences per distance, or given sequences per forward pass.
    prepend_bos: None puts a BOS in front of random tokens where the model has one, and leaves text to the model's default. Token
        ids are used as they are.
    attention_mask: [batch, pos] for given ids, True at real tokens, padding on either side; pads count nowhere.
    layers: the layers to measure; None means all.
    progress: show a bar; None shows one on a terminal only.

    Every column is the mean over query rows that it is defined on, then over distances. Layers that form no attention pattern,
    and what other layers lack, are NaN; `left_out` in the result says which and why, and so does the log. Raises PromptError
    for tokens that do not fit, InterpError for a bad seed, unknown layers or a model without any attention pattern.
    """
    chosen, distances = _chosen_layers(layers, model.cfg.n_layers), whole_numbers("distances", distances)
    missing = unmeasurable(model, chosen)
    if batch < 1:
        raise InterpError(f"batch must be at least 1 sequence, got {batch}.")
    if tokens is None:
        sequences = repeated_sequences(model, distances, batch, seed, prepend_bos)
    else:
        sequences = given_sequences(model, tokens, attention_mask, batch, prepend_bos)
    groups = _measure_groups(model, sequences, chosen, {each.layer for each in missing}, progress)
    thresholds = thresholds or Thresholds()
    evidence = _evidence(model, chosen, sequences, groups).with_ablations(model, sequences, thresholds)
    left_out = missing + _undefined(model, [layer for layer in chosen if layer not in {each.layer for each in missing}])
    log_left_out("head_scores", left_out)
    settings = {"batch": batch, "seed": seed, "requested_distances": distances if sequences.distances else ()}
    return _result(model, sequences, evidence, groups, evidence.labels(thresholds), settings | {"left_out": left_out})


def _undefined(model: Any, layers: Sequence[int]) -> tuple[LeftOut, ...]:
    """What measured layers do not have: sharpness where weights are signed, OV copying where there is no W_V."""
    found = []
    for layer in layers:
        if signed_pattern(model, layer):
            why = "weights there are signed, so they are no distribution over keys"
            found.append(LeftOut(layer, "entropies, logit spread and labels", why))
        if (mixer := mixer_of(model, layer)) is not None and not hasattr(mixer, "W_V"):
            found.append(LeftOut(layer, "ov_copying", f"the mixer there, {type(mixer).__name__}, shows no W_V"))
    return tuple(found)


def _chosen_layers(layers: Sequence[int] | None, n_layers: int) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(n_layers))
    chosen = whole_numbers("layers", layers)
    if not chosen or any(not 0 <= layer < n_layers for layer in chosen) or len(set(chosen)) < len(chosen):
        raise InterpError(f"layers must be different numbers in 0..{n_layers - 1}, got {chosen}.")
    return chosen


def _measure_groups(
    model: Any, sequences: Sequences, layers: tuple[int, ...], without: set[int], progress: bool | None
) -> list[Measurement]:
    """One measurement per distance, batches of one distance added up."""
    groups: dict[int, Measurement] = {}
    for batch in progress_bar(sequences.batches, description="heads", enabled=progress):
        measured = measure(model, batch, layers, without)
        place = sequences.group_of(batch)
        groups[place] = groups[place] + measured if place in groups else measured
    return [groups[place] for place in sorted(groups)]


def _result(
    model: Any,
    sequences: Sequences,
    evidence: Evidence,
    groups: list[Measurement],
    labels: tuple[HeadLabel, ...],
    settings: dict[str, Any],
) -> HeadScores:
    return HeadScores(
        model=model_name(model),
        n_layers=model.cfg.n_layers,
        n_heads=evidence.baselines.shape[-1],
        source="repeated random tokens" if sequences.distances else "given tokens",
        prepend_bos=sequences.prepend_bos,
        logits_from="scores" if all(group.logits_from == "scores" for group in groups) else "pattern",
        loss_first_half=_mean_loss(groups, "first"),
        loss_second_half=_mean_loss(groups, "second"),
        layer=evidence.layers,
        heads_in=tuple(n_heads_of(model, layer) for layer in evidence.layers),
        score=evidence.scores,
        distance=sequences.distances or (0,),
        **_columns(groups, sequences, evidence),
        by_distance=evidence.by_distance,
        baselines=evidence.baselines,
        n_targets=torch.stack([torch.stack([group.columns[score].count for group in groups]).sum(0) for score in TARGETS]),
        labels=labels,
        **settings,
    )


def _evidence(model: Any, layers: tuple[int, ...], sequences: Sequences, groups: list[Measurement]) -> Evidence:
    effect, error = _copying_effect(groups)
    row_sum = _over_groups(groups, "row_sum")
    return Evidence(
        layers=layers,
        scores=tuple(TARGETS),
        distances=sequences.distances,
        by_distance=torch.stack([torch.stack([group.columns[score].mean().float() for group in groups]) for score in TARGETS]),
        baselines=torch.stack([_over_groups(groups, f"{score}_baseline") for score in TARGETS]),
        columns={"ov_copying": _ov_copying(model, layers), "copying_effect": effect, "copying_effect_error": error},
        nameable=~_over_groups(groups, "entropy").isnan() & (row_sum < LARGEST_ROW),
    )


def _columns(groups: list[Measurement], sequences: Sequences, evidence: Evidence) -> dict[str, Any]:
    measured = [name for name in COLUMNS if name in groups[0].columns and name not in evidence.columns]
    columns: dict[str, Any] = {name: _over_groups(groups, name) for name in measured} | evidence.columns
    induction = evidence.by_distance[0]
    columns["induction_min"] = _least(induction) if sequences.distances else torch.full_like(induction[0], math.nan)
    columns["induction_baseline"] = evidence.baselines[0]
    columns["temperature"] = 1 / columns["logit_std"]
    return columns


def _over_groups(groups: list[Measurement], name: str) -> Float[Tensor, "layer head"]:
    """Mean over the distances where a column is defined; NaN where it is nowhere."""
    return torch.stack([group.columns[name].mean() for group in groups]).nanmean(0).float()


def _least(values: Float[Tensor, "distance layer head"]) -> Float[Tensor, "layer head"]:
    """Minimum over the distances where a score is defined."""
    least = values.nan_to_num(math.inf).amin(0)
    return least.masked_fill(least.isinf(), math.nan)


def _copying_effect(groups: list[Measurement]) -> tuple[Float[Tensor, "layer head"], Float[Tensor, "layer head"]]:
    """Mean effect over all rows and its standard error; NaN where it cannot be measured."""
    if "copying_effect" not in groups[0].columns:
        blank = torch.full_like(_over_groups(groups, "induction"), math.nan)
        return blank, blank
    first, *rest = (group.columns["copying_effect"] for group in groups)
    effect = sum(rest, first)
    first, *rest = (group.columns["copying_effect_squared"] for group in groups)
    squares = sum(rest, first)
    variance = (squares.mean() - effect.mean() ** 2).clamp(min=0)
    return effect.mean().float(), (variance / effect.count).sqrt().float()


def _ov_copying(model: Any, layers: tuple[int, ...]) -> Float[Tensor, "layer head"]:
    """NaN in rows of layers that do not show the weights."""
    table = torch.full((len(layers), max(n_heads_of(model, layer) for layer in layers)), math.nan)
    for row, layer in zip(table, layers, strict=True):
        try:
            copying = copying_scores(model, (layer,))[0]
        except WeightsError:
            continue
        row[: len(copying)] = copying
    return table


def _mean_loss(groups: list[Measurement], half: str) -> float | None:
    losses = [float(group.losses[half].mean()) for group in groups if half in group.losses]
    return sum(losses) / len(losses) if losses else None
