"""From one prompt as a user writes it to checked token ids. Every error names the pair and shows its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import PromptError
from ..protocol import bos_token_id, n_logits


@dataclass(frozen=True)
class ParsedPair:
    """One pair as token ids, without padding."""

    clean: list[int]
    corrupt: list[int]
    answers: list[int]
    wrong_answers: list[int]
    prepend_bos: bool


def parse_pair(index: int, prompt: Any, model: Any, prepend_bos: bool | None) -> ParsedPair:
    """Tokenise and check pair number `index`. Raises PromptError (see `PromptPairs.from_prompts`)."""
    name = f"pair {index}"
    if not isinstance(prompt, dict):
        raise PromptError(f"{name} must be a dict with clean, corrupt, answers and wrong_answers, got {type(prompt).__name__}.")
    for key in ("clean", "corrupt", "answers"):
        if key not in prompt:
            raise PromptError(f"{name} lacks {key!r}; it has {', '.join(map(repr, prompt)) or 'nothing'}.")
    if isinstance(prompt["clean"], str) != isinstance(prompt["corrupt"], str):
        raise PromptError(f"{name} must give clean and corrupt both as text or both as token ids.")
    if prepend_bos is None:
        prepend_bos = isinstance(prompt["clean"], str) and bool(getattr(model.cfg, "default_prepend_bos", False))
    clean = _prompt_ids(f"{name}, clean", prompt["clean"], model, prepend_bos)
    corrupt = _prompt_ids(f"{name}, corrupt", prompt["corrupt"], model, prepend_bos)
    if len(clean) != len(corrupt):
        raise PromptError(
            f"{name}: clean and corrupt must have the same number of tokens, got {len(clean)} and {len(corrupt)}: "
            f"clean {show(clean, model)}, corrupt {show(corrupt, model)}."
        )
    answers = _answer_ids(f"{name}, answers", prompt["answers"], prompt["clean"], model)
    wrong = _answer_ids(f"{name}, wrong_answers", prompt.get("wrong_answers", []), prompt["clean"], model)
    if not answers:
        raise PromptError(f"{name} must have at least one answer, got none: clean {show(clean, model)}.")
    if both := sorted(set(answers) & set(wrong)):
        raise PromptError(f"{name}: {show(both, model)} is among both answers and wrong_answers.")
    return ParsedPair(clean, corrupt, answers, wrong, prepend_bos)


def encode(text: str, model: Any) -> list[int]:
    """Token ids of text, without BOS. Raises PromptError where the model has no tokenizer."""
    if getattr(model, "tokenizer", None) is None:
        raise PromptError(f"the model has no tokenizer, so prompts must be lists of token ids, got the text {text!r}.")
    if not text:
        return []
    return torch.as_tensor(model.to_tokens(text, prepend_bos=False)).flatten().tolist()


def show(ids: Sequence[int], model: Any, limit: int = 40) -> str:
    """Tokens for a message: strings where the model has a tokenizer, else ids; long lists are cut in the middle."""
    items: list[int | str] = list(ids)
    if getattr(model, "tokenizer", None) is not None and items:
        items = [str(piece) for piece in model.to_str_tokens(torch.tensor(items))]
    if len(items) > limit:
        items = items[: limit // 2] + ["..."] + items[-limit // 2 :]
    return repr(items)


def _prompt_ids(name: str, prompt: Any, model: Any, prepend_bos: bool) -> list[int]:
    ids = encode(prompt, model) if isinstance(prompt, str) else _checked_ids(name, prompt, model.cfg.d_vocab)
    if not ids:
        raise PromptError(f"{name} is an empty prompt.")
    if prepend_bos:
        ids = [_bos(model), *ids]
    if len(ids) > model.cfg.n_ctx:
        raise PromptError(f"{name} has {len(ids)} tokens, more than the model's context of {model.cfg.n_ctx}.")
    return ids


def _bos(model: Any) -> int:
    bos = bos_token_id(model)
    if bos is None:
        raise PromptError("prepend_bos=True needs a model with a BOS token, and this model has none.")
    return bos


def _checked_ids(name: str, ids: Any, n_ids: int, what: str = "the vocabulary") -> list[int]:
    if isinstance(ids, torch.Tensor):
        ids = ids.flatten().tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        raise PromptError(f"{name} must be text or a list of token ids, got {type(ids).__name__}.")
    for token in ids:
        if not isinstance(token, int) or isinstance(token, bool):
            raise PromptError(f"{name} must hold whole numbers as token ids, got {token!r}.")
        if not 0 <= token < n_ids:
            raise PromptError(f"{name} has token id {token}, outside {what} 0..{n_ids - 1}.")
    return list(ids)


def _answer_ids(name: str, answers: Any, clean: Any, model: Any) -> list[int]:
    if isinstance(answers, str) or not isinstance(answers, Sequence):
        raise PromptError(f"{name} must be a list of single tokens, got {answers!r}.")
    ids = [_single_token(name, answer, clean, model) if isinstance(answer, str) else answer for answer in answers]
    return list(dict.fromkeys(_checked_ids(name, ids, n_logits(model.cfg), "the model's logits")))


def _single_token(name: str, answer: str, clean: Any, model: Any) -> int:
    """The one token of an answer: alone, or as what it adds to the prompt (tokenizers that mark word starts need the latter)."""
    pieces = encode(answer, model)
    if len(pieces) != 1 and isinstance(clean, str):
        before, after = encode(clean, model), encode(clean + answer, model)
        if after[:-1] == before:
            pieces = after[-1:]
    if len(pieces) != 1:
        raise PromptError(
            f"{name} must each be one token, got {answer!r}, which is {len(pieces)}: {show(pieces, model)}; "
            "give the first token, mind a leading space, or pass a token id."
        )
    return pieces[0]
