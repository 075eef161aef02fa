"""Does it matter? Ablating heads, and what that does to the token induction calls for.

A direct effect misses a head that works through later heads; taking the head's output away does not. Other heads may stand in for
an ablated one, so a small effect does not prove a head idle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import InterpError
from .sequences import Batch

Head = tuple[int, int]
"""(layer, head)."""


def ablation_hooks(
    heads: Iterable[Head], how: str = "zero", rows: Bool[Tensor, "batch pos"] | None = None
) -> list[tuple[str, Callable[..., Tensor]]]:
    """Forward hooks that ablate heads: for `run_with_hooks(tokens, fwd_hooks=ablation_hooks([(18, 6)]))`.

    how: "zero" removes the head's output; "mean" puts in its place the mean over all rows, so that only what differs from row to
    row is lost. rows: where to ablate and what the mean runs over; None means everywhere, padding included.
    """
    if how not in ("zero", "mean"):
        raise InterpError(f'how must be "zero" or "mean", got {how!r}.')
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    return [(f"blocks.{layer}.attn.hook_z", _ablate(each, how, rows)) for layer, each in by_layer.items()]


def _ablate(heads: list[int], how: str, rows: Tensor | None) -> Callable[..., Tensor]:
    def hook_function(z: Tensor, hook: Any) -> Tensor:
        chosen = torch.ones(z.shape[:2], dtype=torch.bool, device=z.device) if rows is None else rows.to(z.device)
        z = z.clone()
        for head in heads:
            own = z[:, :, head]
            instead = torch.zeros_like(own[0, 0]) if how == "zero" else own[chosen].mean(0)
            z[:, :, head] = torch.where(chosen[..., None], instead, own)
        return z

    return hook_function


@dataclass(frozen=True)
class Effect:
    """A mean over rows and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Float[Tensor, " row"]) -> Effect:
        """NaN where there are no rows; an infinite error for a single one."""
        error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        return cls(float(values.mean()), error)


@torch.no_grad()
def copying_ablations(model: Any, batch: Batch, heads: Iterable[Head]) -> dict[Head, Effect]:
    """How many logits each head, ablated alone, takes from the token it should copy: its whole effect, direct and through others.

    At the queries with an induction target, the head's output is replaced by its mean over these queries. Positive: the head
    raises the token's logit (less the mean over the vocabulary). One forward pass per head and one without ablation.
    """
    device = next(iter(model.parameters())).device
    tokens, targets = batch.tokens.to(device), batch.targets()["induction"].to(device)
    rows = targets.any(-1)

    def target_logits(hooks: list[tuple[str, Callable[..., Tensor]]]) -> Float[Tensor, " row"]:
        return _target_logits(model.run_with_hooks(tokens, fwd_hooks=hooks), tokens, targets)[rows]

    if not (heads := list(heads)):
        return {}
    intact = target_logits([])
    return {head: Effect.of(intact - target_logits(ablation_hooks([head], "mean", rows))) for head in heads}


def _target_logits(
    logits: Float[Tensor, "batch query vocab"], tokens: Int[Tensor, "batch query"], targets: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "batch query"]:
    """Logit of the token at the target (the mean over targets), less the mean over the vocabulary."""
    logits = logits.float()
    of_keys = logits.gather(-1, tokens[:, None].expand(-1, tokens.shape[1], -1))
    weights = targets.float() / targets.sum(-1, keepdim=True).clamp(min=1)
    return (of_keys * weights).sum(-1) - logits.mean(-1)
