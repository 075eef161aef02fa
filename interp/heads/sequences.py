"""What heads are measured on: repeated random tokens at several distances, or the user's own tokens, in checked batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..errors import PromptError
from ..prompts import repeated_tokens
from ..protocol import bos_token_id, special_token_ids
from ..run import checked_seed
from .patterns import all_kept, target_masks

MIN_DISTANCE = 2


@dataclass(frozen=True)
class Batch:
    """Sequences that go through the model together."""

    tokens: Int[Tensor, "batch pos"]
    kept: Bool[Tensor, "batch pos"]
    """True at real tokens; padding is on one side of a row."""
    bos_token_id: int | None
    distance: int | None = None
    """Tokens between a token and its repetition; None for tokens that a user gave."""

    @property
    def is_padded(self) -> bool:
        return not bool(self.kept.all())

    def targets(self) -> dict[str, Bool[Tensor, "batch query key"]]:
        """The target masks of every pattern score."""
        return target_masks(self.tokens, self.kept, self.bos_token_id)


@dataclass(frozen=True)
class Sequences:
    """All batches of a measurement. Batches of one distance form a group: scores are averaged in it first, then over groups."""

    batches: tuple[Batch, ...]
    distances: tuple[int, ...]
    """Distances measured; empty for given tokens."""
    prepend_bos: bool | None
    """Whether a BOS was put in front; None for given token ids, which are used as they are."""

    def group_of(self, batch: Batch) -> int:
        return 0 if batch.distance is None else self.distances.index(batch.distance)


def fitting_distances(distances: Sequence[int], longest: int) -> tuple[int, ...]:
    """The distances, or, where the largest does not fit, all of them scaled by longest / largest and rounded down.

    Scaling keeps them apart, which is what tells a head that matches tokens from one that attends a fixed offset. Raises
    PromptError for no distances, one under 2, or no room for a distance of 2.
    """
    if not distances or min(distances) < MIN_DISTANCE:
        raise PromptError(
            f"distances must hold at least one number of tokens, each {MIN_DISTANCE} or more, got {tuple(distances)}."
        )
    if longest < MIN_DISTANCE:
        raise PromptError(
            f"the model's context or vocabulary has room for a repeat distance of {max(longest, 0)} only, and at least "
            f"{MIN_DISTANCE} is needed; pass tokens of your own."
        )
    largest = max(distances)
    if largest <= longest:
        return tuple(dict.fromkeys(distances))
    return tuple(dict.fromkeys(max(MIN_DISTANCE, distance * longest // largest) for distance in distances))


def repeated_sequences(model: Any, distances: Sequence[int], batch: int, seed: int, prepend_bos: bool | None) -> Sequences:
    """One batch of [BOS] r r per distance, with unique random tokens in r and no special tokens.

    `prepend_bos=None` adds a BOS where the model has one. Distances shrink to fit the model (`fitting_distances`).
    """
    bos = bos_token_id(model)
    if prepend_bos and bos is None:
        raise PromptError("prepend_bos=True needs a model with a BOS token, and this model has none.")
    with_bos = bos is not None if prepend_bos is None else prepend_bos
    excluded = special_token_ids(model)
    longest = model.cfg.d_vocab - len([token for token in excluded if token < model.cfg.d_vocab])
    if (n_ctx := getattr(model.cfg, "n_ctx", None)) is not None:
        longest = min(longest, (n_ctx - with_bos) // 2)
    fitting, seed = fitting_distances(distances, longest), checked_seed(seed)
    batches = []
    for place, distance in enumerate(fitting):
        tokens = repeated_tokens(
            model.cfg.d_vocab, distance, batch, bos_token_id=bos if with_bos else None, exclude=excluded, seed=seed + place
        )
        batches.append(Batch(tokens, all_kept(tokens), bos, distance))
    return Sequences(tuple(batches), fitting, with_bos)


def given_sequences(model: Any, tokens: Any, attention_mask: Tensor | None, batch: int, prepend_bos: bool | None) -> Sequences:
    """A user's text, or token ids [pos] or [batch, pos], in batches of at most `batch` sequences.

    Raises PromptError for ids outside the vocabulary, an empty or too long sequence, or a mask that is not padding on one side.
    """
    is_text = isinstance(tokens, str) or (isinstance(tokens, list | tuple) and bool(tokens) and isinstance(tokens[0], str))
    if is_text:
        ids = model.to_tokens(tokens) if prepend_bos is None else model.to_tokens(tokens, prepend_bos=prepend_bos)
    elif prepend_bos:
        raise PromptError(
            "prepend_bos=True applies to text, and tokens are ids, which are used as they are; put the BOS id into them."
        )
    else:
        ids = _as_ids(tokens)
    ids = ids[None] if ids.dim() == 1 else ids
    _check_ids(ids, model.cfg)
    kept = all_kept(ids) if attention_mask is None else _checked_mask(attention_mask, ids)
    bos = bos_token_id(model)
    starts_with_bos = bos is not None and bool((ids[:, 0] == bos).all())
    parts = [Batch(ids[i : i + batch], kept[i : i + batch], bos) for i in range(0, len(ids), batch)]
    return Sequences(tuple(parts), (), starts_with_bos if is_text else None)


def _as_ids(tokens: Any) -> Tensor:
    try:
        ids = torch.as_tensor(tokens)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PromptError(
            f"tokens must be text or rows of token ids of one length, got {type(tokens).__name__}: {error}."
        ) from None
    if not ids.numel():
        raise PromptError("tokens is an empty prompt; give text or at least one token id, or None for repeated random tokens.")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise PromptError(f"tokens must be whole-number ids, got dtype {ids.dtype}.")
    return ids.long()


def _check_ids(ids: Tensor, cfg: Any) -> None:
    if ids.dim() != 2 or not ids.numel():
        raise PromptError(f"tokens must have the shape [pos] or [batch, pos] with at least one token, got {tuple(ids.shape)}.")
    if int(ids.min()) < 0 or int(ids.max()) >= cfg.d_vocab:
        raise PromptError(f"tokens must lie in 0..{cfg.d_vocab - 1}, got {int(ids.min())}..{int(ids.max())}.")
    n_ctx = getattr(cfg, "n_ctx", None)
    if n_ctx is not None and ids.shape[1] > n_ctx:
        raise PromptError(f"tokens are {ids.shape[1]} long, more than the model's context of {n_ctx}; use shorter ones.")


def _checked_mask(mask: Tensor, ids: Tensor) -> Tensor:
    kept = torch.as_tensor(mask).bool()
    if kept.shape != ids.shape:
        raise PromptError(f"attention_mask has shape {tuple(kept.shape)}, wanted that of the tokens, {tuple(ids.shape)}.")
    runs = torch.cat([kept[:, :1], kept[:, 1:] & ~kept[:, :-1]], dim=1).sum(1)
    if bad := [row for row, n in enumerate(runs.tolist()) if n != 1]:
        raise PromptError(
            f"attention_mask row {bad[0]} must be one run of real tokens with padding on the sides, got {int(runs[bad[0]])} runs."
        )
    return kept
