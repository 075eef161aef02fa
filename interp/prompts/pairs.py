"""Clean and corrupt prompts, aligned token by token, with the tokens that are right and wrong after each clean prompt.

    clean    When Mary and John went to the shop, John gave a drink to     answer " Mary", wrong answer " John"
    corrupt  When Anna and Luke went to the shop, Mark gave a drink to

Every check names the pair at fault, so that a mistake in a file of a thousand prompts takes a second to find.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..errors import PromptError, counted, whole_number
from ..run import read_json
from .tokens import ParsedPair, parse_pair

NO_ANSWER = -1
"""Fills the answer tensors where a pair has fewer answers than the pair with the most."""


@dataclass(frozen=True, repr=False)
class PromptPairs:
    """A batch of clean/corrupt pairs, padded to one length.

    `answers` and `wrong_answers` hold token ids, filled with -1 where a pair has fewer than the widest one. `attention_mask`
    is True at real tokens and is shared by clean and corrupt, whose lengths agree pair by pair. `last` is the index of each
    pair's last real token: the position whose logits predict the answer. `prepend_bos` records whether a BOS was added here.
    `pairs[3]`, `pairs[:5]` and `for pair in pairs` give PromptPairs again, of one pair or several.
    """

    clean: Int[Tensor, "batch pos"]
    corrupt: Int[Tensor, "batch pos"]
    answers: Int[Tensor, "batch n_answers"]
    wrong_answers: Int[Tensor, "batch n_wrong"]
    attention_mask: Bool[Tensor, "batch pos"]
    last: Int[Tensor, " batch"]
    prepend_bos: bool = False
    source: str = ""
    """Where the pairs come from, in words."""

    def __len__(self) -> int:
        return self.clean.shape[0]

    def __repr__(self) -> str:
        source = f", {self.source}" if self.source else ""
        return f"PromptPairs({counted(len(self), 'pair')} of up to {counted(self.clean.shape[1], 'token')}{source})"

    @property
    def padded(self) -> bool:
        """Whether any position is padding."""
        return not bool(self.attention_mask.all())

    def batches(self, size: int) -> Iterator[PromptPairs]:
        """Consecutive slices of at most `size` pairs; padding stays as it is."""
        if size < 1:
            raise PromptError(f"size must be at least 1 pair per batch, got {size}.")
        for start in range(0, len(self), size):
            yield self[start : start + size]

    def __iter__(self) -> Iterator[PromptPairs]:
        return self.batches(1)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> PromptPairs:
        """One pair by number, or those of a slice, list or tensor of numbers."""
        number = None if isinstance(index, Tensor) and index.dim() else whole_number(index)
        if number is not None:
            if not -len(self) <= number < len(self):
                raise IndexError(f"there is no pair {number}; there are {counted(len(self), 'pair')}, numbered from 0.")
            index = [number]
        rows = {name: getattr(self, name)[index] for name in _TENSORS}
        return replace(self, **rows)

    def to(self, device: torch.device | str) -> PromptPairs:
        """The same pairs on another device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in _TENSORS})

    def to_lists(self) -> list[dict[str, list[int]]]:
        """Token ids without padding, one dict per pair, in the form that `from_prompts` reads."""
        return [
            {
                "clean": self.clean[i][self.attention_mask[i]].tolist(),
                "corrupt": self.corrupt[i][self.attention_mask[i]].tolist(),
                "answers": [token for token in self.answers[i].tolist() if token != NO_ANSWER],
                "wrong_answers": [token for token in self.wrong_answers[i].tolist() if token != NO_ANSWER],
            }
            for i in range(len(self))
        ]

    def record(self) -> dict[str, Any]:
        """What a manifest keeps: how many pairs, their lengths in tokens, BOS, source, and the sha256 of all ids.

        The hash is taken over unpadded ids, so it does not depend on the padding side.
        """
        lengths = self.attention_mask.sum(1)
        text = json.dumps(self.to_lists(), separators=(",", ":"), sort_keys=True)
        return {
            "n_pairs": len(self),
            "min_tokens": int(lengths.min()),
            "max_tokens": int(lengths.max()),
            "prepend_bos": self.prepend_bos,
            "source": self.source,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        }

    @classmethod
    def from_prompts(
        cls,
        prompts: Sequence[Any],
        model: Any,
        prepend_bos: bool | None = None,
        *,
        padding_side: str = "right",
        source: str = "",
    ) -> PromptPairs:
        """Check and tokenise prompts `{"clean", "corrupt", "answers": [...], "wrong_answers": [...]}`.

        Prompts and answers are text or token ids. `prepend_bos=None` takes the model's own default for text and leaves token
        ids exactly as given; True puts a BOS in front of either.

        Raises PromptError, naming the pair, for: clean and corrupt of different token lengths, an empty prompt, an answer that
        is missing, is not one token, is also a wrong answer or is outside the model's logits, a token id outside the
        vocabulary, a prompt longer than the context.
        """
        if not prompts:
            raise PromptError("prompts must hold at least one clean/corrupt pair, got none.")
        if padding_side not in ("right", "left"):
            raise PromptError(f'padding_side must be "right" or "left", got {padding_side!r}.')
        parsed = [parse_pair(index, prompt, model, prepend_bos) for index, prompt in enumerate(prompts)]
        bos = {pair.prepend_bos for pair in parsed}
        if len(bos) > 1:
            raise PromptError("prompts mix text and token ids, which differ in whether a BOS is added; pass prepend_bos.")
        return _pad(parsed, padding_side, bos.pop(), source)

    @classmethod
    def from_json(cls, path: str | Path, model: Any, prepend_bos: bool | None = None) -> PromptPairs:
        """Read a file `{"prompts": [...]}` (see `from_prompts`); other top-level keys are ignored."""
        path = Path(path)
        data = read_json(path, "prompt file", PromptError)
        if not isinstance(data, dict) or not isinstance(data.get("prompts"), list):
            raise PromptError(f'prompt file {path} must hold {{"prompts": [...]}}, got {_summary(data)}.')
        return cls.from_prompts(data["prompts"], model, prepend_bos, source=path.name)


_TENSORS = ("clean", "corrupt", "answers", "wrong_answers", "attention_mask", "last")


def _pad(parsed: list[ParsedPair], side: str, prepend_bos: bool, source: str) -> PromptPairs:
    width = max(len(pair.clean) for pair in parsed)
    lengths = torch.tensor([len(pair.clean) for pair in parsed])
    positions = torch.arange(width)
    if side == "right":
        mask = positions < lengths[:, None]
        last = lengths - 1
    else:
        mask = positions >= width - lengths[:, None]
        last = torch.full_like(lengths, width - 1)
    return PromptPairs(
        clean=_fill(mask, [pair.clean for pair in parsed]),
        corrupt=_fill(mask, [pair.corrupt for pair in parsed]),
        answers=_rows([pair.answers for pair in parsed]),
        wrong_answers=_rows([pair.wrong_answers for pair in parsed]),
        attention_mask=mask,
        last=last,
        prepend_bos=prepend_bos,
        source=source,
    )


def _fill(mask: Bool[Tensor, "batch pos"], rows: list[list[int]]) -> Int[Tensor, "batch pos"]:
    tokens = torch.zeros(mask.shape, dtype=torch.long)
    tokens[mask] = torch.tensor([token for row in rows for token in row])
    return tokens


def _rows(rows: list[list[int]]) -> Int[Tensor, "batch n"]:
    width = max(len(row) for row in rows)
    return torch.tensor([row + [NO_ANSWER] * (width - len(row)) for row in rows], dtype=torch.long).reshape(len(rows), width)


def _summary(data: Any) -> str:
    return f"keys {sorted(data)}" if isinstance(data, dict) else type(data).__name__
