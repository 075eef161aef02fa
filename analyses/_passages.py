"""Sequences of several lengths to measure heads on: pieces of a text, or repeated random tokens for a model without tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import PromptError
from interp.prompts import repeated_tokens
from interp.prompts.tokens import encode
from interp.protocol import bos_token_id, special_token_ids

SHORTEST = 8


@dataclass(frozen=True)
class Passage:
    """Sequences of one length and where they come from."""

    tokens: Int[Tensor, "batch pos"]
    source: str
    prepend_bos: bool

    @property
    def length(self) -> int:
        return self.tokens.shape[1]


def passages(model: Any, text: Path | None, lengths: Sequence[int], n_tokens: int, bos: bool | None, seed: int) -> list[Passage]:
    """One set of sequences per length that fits the context and the text, of at most `n_tokens` tokens or one sequence.

    `bos=None` follows the model: its tokenizer's habit for text, a BOS where there is one for random tokens. Raises PromptError
    where nothing fits, or the text cannot be read.
    """
    if min(lengths) < SHORTEST:
        raise PromptError(f"lengths must be at least {SHORTEST} tokens, got {tuple(lengths)}.")
    if bos and bos_token_id(model) is None:
        raise PromptError("--bos needs a model with a BOS token, and this model has none.")
    if model.tokenizer is not None:
        return text_passages(model, *read_text(text), lengths, n_tokens, model.cfg.default_prepend_bos if bos is None else bos)
    if text is not None:
        raise PromptError(f"the model has no tokenizer to read {text} with; leave --text out to use random tokens.")
    return random_passages(model, lengths, n_tokens, bos is not False, seed)


def read_text(path: Path | None) -> tuple[str, str]:
    """A text and its name: a file's, or the passage that comes with the toolkit."""
    if path is None:
        return files("analyses").joinpath("data", "prose.txt").read_text(encoding="utf-8"), "the toolkit's own passage"
    try:
        return path.read_text(encoding="utf-8"), path.name
    except UnicodeDecodeError as error:
        raise PromptError(f"text file {path} is not UTF-8: {error}.") from None


def text_passages(model: Any, text: str, source: str, lengths: Sequence[int], n_tokens: int, with_bos: bool) -> list[Passage]:
    """Consecutive pieces of the text, each with a BOS in front if asked."""
    first = bos_token_id(model) if with_bos else None
    bos = [] if first is None else [first]
    ids, found = encode(text, model), []
    for length in sorted(set(lengths)):
        step = length - len(bos)
        count = min(len(ids) // step, max(1, n_tokens // length))
        if length <= model.cfg.n_ctx and count:
            rows = [bos + ids[i * step : (i + 1) * step] for i in range(count)]
            found.append(Passage(torch.tensor(rows), source, with_bos))
    if not found:
        raise PromptError(
            f"none of the lengths {tuple(lengths)} fits: {source} has {len(ids)} tokens, the model's context {model.cfg.n_ctx}."
        )
    return found


def random_passages(model: Any, lengths: Sequence[int], n_tokens: int, with_bos: bool, seed: int) -> list[Passage]:
    """[BOS] r r of about each length; a quarter, a half and all of the context where fewer than two of the lengths fit."""
    bos = bos_token_id(model) if with_bos else None
    special = special_token_ids(model)
    longest = min(model.cfg.n_ctx, 2 * (model.cfg.d_vocab - len(special)) + 1)
    fitting = {length for length in lengths if length <= longest}
    if len(fitting) < 2:
        fitting = {length for length in (longest // 4, longest // 2, longest) if length >= SHORTEST}
    if not fitting:
        raise PromptError(
            f"the model's context of {model.cfg.n_ctx} tokens is too short to measure heads on; {SHORTEST} are needed."
        )

    def draw(length: int) -> Tensor:
        distance = (length - (bos is not None)) // 2
        count = max(1, n_tokens // length)
        return repeated_tokens(model.cfg.d_vocab, distance, count, bos_token_id=bos, exclude=special, seed=seed)

    return [Passage(draw(length), "repeated random tokens", bos is not None) for length in sorted(fitting)]
