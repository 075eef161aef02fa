"""Which keys a head of a known type should attend, and how much of its attention goes there.

A *target mask* [batch, query, key] marks, for each query, the keys a perfect head of some type attends. A head's score is the
attention mass on those keys, averaged over the queries that have a target and over no others, so that a perfect head scores
exactly 1 whatever the length of the text (dividing by all queries caps it near 0.5 on twice-repeated tokens). The mass on
several targets of one query is summed.

Masks are True = keep. `kept` [batch, pos] marks real tokens; padding is neither a query nor a key and starts or ends a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..precision import widened

Tokens = Int[Tensor, "batch pos"]
Kept = Bool[Tensor, "batch pos"]
Targets = Bool[Tensor, "batch query key"]


@dataclass(frozen=True)
class TargetMass:
    """Attention on target keys, per batch element, head and query."""

    mass: Float[Tensor, "batch head query"]
    """Attention of the row on its targets. A share that a head gives to a learned sink is not made up for."""
    uniform: Float[Tensor, "batch head query"]
    """The same for a head that spreads evenly over its visible keys: targets / visible keys."""
    has_target: Bool[Tensor, "batch head query"]
    """Rows that count: those with at least one visible target."""

    def mean(self) -> Float[Tensor, " head"]:
        """Mean mass over rows with a target; NaN where no row has one."""
        return self._mean_of(self.mass)

    def baseline(self) -> Float[Tensor, " head"]:
        """The mean that a uniform head would get."""
        return self._mean_of(self.uniform)

    def n_targets(self) -> Int[Tensor, " head"]:
        """Rows that count, per head."""
        return self.has_target.sum((0, 2))

    def _mean_of(self, values: Float[Tensor, "batch head query"]) -> Float[Tensor, " head"]:
        return values.where(self.has_target, 0.0).sum((0, 2)) / self.n_targets()


def target_mass(
    pattern: Float[Tensor, "batch head query key"],
    targets: Bool[Tensor, "batch query key"],
    visible: Bool[Tensor, "batch head query key"] | None = None,
) -> TargetMass:
    """Attention mass on the targets that a head can see.

    `visible` (default: all keys up to the query) says which keys each head may attend; a row whose targets all lie outside,
    as beyond a sliding window, has no target. The pattern is read, never written.
    """
    if visible is None:
        visible = torch.ones_like(pattern, dtype=torch.bool).tril()
    wanted = targets.to(widened(pattern).dtype)
    seen = visible.to(wanted.dtype)
    mass = torch.einsum("bhqk,bqk->bhq", widened(pattern), wanted)
    found = torch.einsum("bhqk,bqk->bhq", seen, wanted)
    return TargetMass(mass, found / seen.sum(-1).clamp(min=1), found > 0)


def all_kept(tokens: Tokens) -> Kept:
    """The mask of a batch without padding."""
    return torch.ones_like(tokens, dtype=torch.bool)


def first_position(kept: Kept) -> Int[Tensor, " batch"]:
    """Index of the first real token of each row."""
    return kept.int().argmax(-1)


def _offset(kept: Kept, distance: int) -> Targets:
    """True where key = query - distance."""
    length = kept.shape[1]
    diagonal = torch.ones(length, length, dtype=torch.bool, device=kept.device).tril(-distance).triu(-distance)
    return _real(diagonal.expand(len(kept), -1, -1), kept)


def _real(targets: Targets, kept: Kept) -> Targets:
    return targets & kept[:, :, None] & kept[:, None, :]


def _same_token(tokens: Tokens, kept: Kept) -> Targets:
    """True where query and key are real and hold the same token."""
    return _real(tokens[:, :, None] == tokens[:, None, :], kept)


def _shifted(targets: Targets, by: int) -> Targets:
    """Targets moved along the key axis, padded with False: by=1 turns 'the same token' into 'the token after it'."""
    moved = torch.zeros_like(targets)
    if by > 0:
        moved[..., by:] = targets[..., :-by]
    else:
        moved[..., :by] = targets[..., -by:]
    return moved


def induction_targets(tokens: Tokens, kept: Kept | None = None, bos_token_id: int | None = None) -> Targets:
    """Keys that follow an earlier occurrence of the query's token: x[j-1] = x[i] with 0 < j < i (Olsson et al. 2022).

    The key i itself, which follows an adjacent duplicate, is no target: attending it is attending oneself. A BOS token in the
    middle of a row is no target either.
    """
    kept = all_kept(tokens) if kept is None else kept
    targets = _real(_shifted(_same_token(tokens, kept), 1), kept).tril(-1)
    return _but_bos(targets, tokens, bos_token_id)


def _but_bos(targets: Targets, tokens: Tokens, bos_token_id: int | None) -> Targets:
    return targets if bos_token_id is None else targets & (tokens != bos_token_id)[:, None, :]


def predecessor_targets(tokens: Tokens, kept: Kept | None = None, bos_token_id: int | None = None) -> Targets:
    """Keys that stand before an earlier occurrence of the query's token: x[j+1] = x[i] with j + 1 < i. A BOS token is none."""
    kept = all_kept(tokens) if kept is None else kept
    return _but_bos(_real(_shifted(_same_token(tokens, kept).tril(-1), -1), kept), tokens, bos_token_id)


def duplicate_targets(tokens: Tokens, kept: Kept | None = None) -> Targets:
    """Earlier occurrences of the query's own token: x[j] = x[i] with j < i."""
    return _same_token(tokens, all_kept(tokens) if kept is None else kept).tril(-1)


def previous_targets(tokens: Tokens, kept: Kept | None = None, bos_token_id: int | None = None) -> Targets:
    """The key just before the query. Where a row starts with BOS its second query is left out: its previous token is the sink."""
    kept = all_kept(tokens) if kept is None else kept
    targets = _offset(kept, 1)
    if bos_token_id is None:
        return targets
    first = first_position(kept)
    starts_with_bos = tokens.gather(1, first[:, None])[:, 0] == bos_token_id
    key = torch.arange(tokens.shape[1], device=tokens.device)
    return targets & ~((key == first[:, None]) & starts_with_bos[:, None])[:, None, :]


def first_targets(tokens: Tokens, kept: Kept | None = None) -> Targets:
    """The first real token, for every later query: the usual attention sink."""
    kept = all_kept(tokens) if kept is None else kept
    key = torch.arange(tokens.shape[1], device=tokens.device)
    return _real((key == first_position(kept)[:, None])[:, None, :] & _later(kept), kept)


def _later(kept: Kept) -> Targets:
    """True where the query is not the first real token."""
    query = torch.arange(kept.shape[1], device=kept.device)
    return (query > first_position(kept)[:, None])[:, :, None]


def current_targets(tokens: Tokens, kept: Kept | None = None) -> Targets:
    """The query's own position, for every query after the first, which has no other key."""
    kept = all_kept(tokens) if kept is None else kept
    return _offset(kept, 0) & _later(kept)


def sink_strength(pattern: Float[Tensor, "batch head query key"], key: int = 0) -> Float[Tensor, "batch head"]:
    """alpha_k = mean over queries i >= k of A[i, k], row k included (Gu et al. 2024, arXiv 2410.10781).

    A uniform causal head gets H_T / T (harmonic number), over 0.3 for T <= 9: judge only texts of 16 tokens or more.
    """
    return widened(pattern)[:, :, key:, key].mean(-1)


def sink_rate(pattern: Float[Tensor, "batch head query key"], key: int = 0, threshold: float = 0.3) -> float:
    """Share of heads and texts whose `sink_strength` exceeds the threshold."""
    return float((sink_strength(pattern, key) > threshold).float().mean())


TargetFunction = Callable[[Tokens, Kept, int | None], Targets]

TARGETS: dict[str, TargetFunction] = {
    "induction": induction_targets,
    "previous_token": previous_targets,
    "duplicate_token": lambda tokens, kept, bos: duplicate_targets(tokens, kept),
    "first_token": lambda tokens, kept, bos: first_targets(tokens, kept),
    "predecessor": predecessor_targets,
    "current_token": lambda tokens, kept, bos: current_targets(tokens, kept),
}
"""Target masks by the name of the score they define, each called as f(tokens, kept, bos_token_id)."""


def target_masks(tokens: Tokens, kept: Kept | None = None, bos_token_id: int | None = None) -> dict[str, Targets]:
    """Every target mask of a batch, by score name."""
    kept = all_kept(tokens) if kept is None else kept
    return {name: function(tokens, kept, bos_token_id) for name, function in TARGETS.items()}
