"""The tokeniser that a GGUF file's metadata describes: byte-level BPE, or SentencePiece BPE."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .gguf_vocabulary import BYTE, CONTROL, UNKNOWN, USER_DEFINED, Vocabulary, read_vocabulary
from .tokenizer import SPACE, Tokenizer

if TYPE_CHECKING:
    import tokenizers

GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class Splitting:
    """How text is cut before the merges apply: by each pattern in turn."""

    patterns: tuple[str, ...]
    nfc: bool = False
    """Compose characters (Unicode NFC) first."""
    whole_words: bool = False
    """Take a piece that is itself a token as it is, without merging."""
    adds_bos: bool = False
    """Whether BOS is added where the file does not say."""


GPT2 = Splitting((GPT2_SPLIT,))
SINGLE_DIGITS = Splitting((r"\p{N}", GPT2_SPLIT))
LLAMA3 = Splitting((LLAMA3_SPLIT,), whole_words=True, adds_bos=True)
QWEN2 = Splitting((QWEN2_SPLIT,), nfc=True)

SPLITTINGS = {
    "gpt-2": GPT2,
    "gpt2": GPT2,
    "smollm": SINGLE_DIGITS,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
}
"""By the value of `tokenizer.ggml.pre`."""


def tokenizer_from_gguf(metadata: Mapping[str, Any], where: str = "the GGUF file") -> Tokenizer | None:
    """The tokeniser of a GGUF file. None, with a warning, for a kind that is not known, since a guess would be wrong quietly.

    where: the file, for error messages. Raises CheckpointError where its metadata contradicts itself.
    """
    vocabulary = read_vocabulary(metadata, where)
    if vocabulary is None:
        return None
    model, pre = vocabulary.model, vocabulary.pre
    if model == "gpt2" and pre in SPLITTINGS:
        backend, adds_bos = _byte_level(vocabulary, SPLITTINGS[pre]), SPLITTINGS[pre].adds_bos
    elif model == "llama":
        backend, adds_bos = _sentencepiece(vocabulary), True
    else:
        warnings.warn(
            f"the file's tokeniser (model {model!r}, pre {pre!r}) is not known, so only token ids can be used.", stacklevel=2
        )
        return None
    _add_whole_tokens(backend, vocabulary)
    return Tokenizer(backend, vocabulary.bos, vocabulary.eos, adds_bos if vocabulary.add_bos is None else vocabulary.add_bos)


def _byte_level(vocabulary: Vocabulary, splitting: Splitting) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    backend = Tokenizer(models.BPE(ids, vocabulary.merges, ignore_merges=splitting.whole_words))
    if splitting.nfc:
        backend.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splitting.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    ids = {_spelled(token): index for index, token in enumerate(vocabulary.tokens)}
    unk_token = None if vocabulary.unknown is None else _spelled(vocabulary.tokens[vocabulary.unknown])
    merges = _merges(ids, vocabulary)
    backend = Tokenizer(models.BPE(ids, merges, unk_token=unk_token, fuse_unk=True, byte_fallback=True))
    if vocabulary.add_space_prefix:
        # A space before the text, unless it begins with one or with a special token.
        backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    else:
        backend.normalizer = normalizers.Replace(" ", SPACE)
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.add_space_prefix else []
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend


def _spelled(token: str) -> str:
    """SentencePiece files spell tokens of spaces alone with real spaces, all others with the visible sign."""
    return token if token.strip(" ") else SPACE * len(token)


def _merges(ids: dict[str, int], vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """The merges that a SentencePiece vocabulary implies: every way to cut a token into two tokens, best token first.

    A token's score is its rank; those the user defined come before all others, since SentencePiece never cuts them.
    """
    lengths = {len(token) for token in ids if token}
    cuts, merges = sorted(lengths, reverse=True), []
    for token, index in ids.items():
        kind = vocabulary.types[index]
        if kind in (UNKNOWN, CONTROL, BYTE):
            continue
        rank = (0, float(index)) if kind == USER_DEFINED else (1, -vocabulary.scores[index])
        # Both parts must be as long as some token, which leaves few cuts of a token that is far longer than the others.
        for cut in (cut for cut in cuts if len(token) - cut in lengths):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                merges.append((rank, left, right))
    merges.sort(key=lambda merge: merge[0])
    return [(left, right) for _, left, right in merges]


def _add_whole_tokens(backend: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
    """Control tokens and those the user defined are found whole in a text, before anything else."""
    from tokenizers import AddedToken

    known = backend.get_vocab(with_added_tokens=False)
    for wanted, special in ((CONTROL, True), (USER_DEFINED, False)):
        tokens = [
            AddedToken(token, normalized=False, special=special)
            for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
            if kind == wanted and token in known
        ]
        (backend.add_special_tokens if special else backend.add_tokens)(tokens)
