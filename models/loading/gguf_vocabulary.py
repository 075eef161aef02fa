"""What a GGUF file's metadata says about its tokeniser, validated once, so that building one can rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointError
from .families.fields import FLAG, NUMBER, TEXT, WHOLE, FieldKind

KEY = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
"""Token types."""

ID_FIELDS = ("bos_token_id", "eos_token_id", "unknown_token_id")


def _list_of(kind: FieldKind) -> FieldKind:
    return FieldKind(f"a list, each {kind.words}", lambda value: isinstance(value, list) and all(map(kind.fits, value)))


FIELDS = {
    "model": TEXT.or_null(),
    "pre": TEXT.or_null(),
    "tokens": _list_of(TEXT),
    "token_type": _list_of(WHOLE).or_null(),
    "scores": _list_of(NUMBER).or_null(),
    "merges": _list_of(TEXT).or_null(),
    "add_bos_token": FLAG.or_null(),
    "add_space_prefix": FLAG.or_null(),
    **{field: WHOLE.or_null() for field in ID_FIELDS},
}
NEEDED = {"gpt2": ("merges",), "llama": ("scores", "token_type")}
"""By kind of tokeniser, the fields without which there is none."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in the order of their ids, each with its type, and its score where the kind has scores."""

    model: str | None
    pre: str | None
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[tuple[str, str]]
    bos: int | None
    eos: int | None
    unknown: int | None
    add_bos: bool | None
    add_space_prefix: bool


def read_vocabulary(metadata: Mapping[str, Any], where: str) -> Vocabulary | None:
    """The vocabulary in a file's metadata; None where it has none.

    Raises CheckpointError naming a field that is missing, of the wrong kind or length, or refers to a token there is not.
    """
    if f"{KEY}tokens" not in metadata:
        return None
    found: dict[str, Any] = {field: metadata.get(KEY + field) for field in FIELDS}
    for field, kind in FIELDS.items():
        kind.check(KEY + field, found[field], where, CheckpointError)
    for field in NEEDED.get(found["model"], ()):
        if found[field] is None:
            raise CheckpointError(f"{where} lacks '{KEY}{field}', which a tokeniser of kind {found['model']!r} needs.")
    tokens = found["tokens"]
    _check_tokens(found, where)
    return Vocabulary(
        model=found["model"],
        pre=found["pre"],
        tokens=tokens,
        types=[NORMAL] * len(tokens) if found["token_type"] is None else found["token_type"],
        scores=found["scores"] or [],
        merges=_merges(found["merges"], set(tokens), where) if found["model"] == "gpt2" else [],
        bos=found["bos_token_id"],
        eos=found["eos_token_id"],
        unknown=found["unknown_token_id"],
        add_bos=found["add_bos_token"],
        add_space_prefix=found["add_space_prefix"] is not False,
    )


def _check_tokens(found: Mapping[str, Any], where: str) -> None:
    """Raise CheckpointError where tokens are no Unicode text, or another field does not match them."""
    n_tokens = len(found["tokens"])
    try:
        "".join(found["tokens"]).encode()
    except UnicodeEncodeError:
        raise CheckpointError(f"'{KEY}tokens' in {where} holds a token that is not valid UTF-8.") from None
    for field in ("token_type", "scores"):
        if found[field] is not None and len(found[field]) != n_tokens:
            raise CheckpointError(f"'{KEY}{field}' in {where} has {len(found[field])} entries for {n_tokens} tokens.")
    for field in ID_FIELDS:
        if found[field] is not None and not 0 <= found[field] < n_tokens:
            raise CheckpointError(f"'{KEY}{field}' in {where} is {found[field]}, outside the {n_tokens} tokens.")


def _merges(merges: list[str], tokens: set[str], where: str) -> list[tuple[str, str]]:
    """The two tokens of each merge, which are separated by a space."""
    pairs = []
    for merge in merges:
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= tokens:
            raise CheckpointError(f"'{KEY}merges' in {where} holds {merge[:80]!r}, which does not make a token of two others.")
        pairs.append((left, right))
    return pairs
