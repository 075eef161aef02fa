"""The tokeniser that a GGUF file's metadata describes: byte-level BPE, or SentencePiece BPE."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .tokenizer import SPACE, Tokenizer

if TYPE_CHECKING:
    import tokenizers

KEY = "tokenizer.ggml."
UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6
"""Token types; 1 is an ordinary token."""

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


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer | None:
    """The tokeniser of a GGUF file. None, with a warning, for a kind that is not known, since a guess would be wrong quietly."""
    model, pre = metadata.get(f"{KEY}model"), metadata.get(f"{KEY}pre")
    if f"{KEY}tokens" not in metadata:
        return None
    if model == "gpt2" and pre in SPLITTINGS:
        backend, adds_bos = _byte_level(metadata, SPLITTINGS[pre]), SPLITTINGS[pre].adds_bos
    elif model == "llama":
        backend, adds_bos = _sentencepiece(metadata), True
    else:
        warnings.warn(
            f"the file's tokeniser (model {model!r}, pre {pre!r}) is not known, so only token ids can be used.", stacklevel=2
        )
        return None
    _add_whole_tokens(backend, metadata)
    bos, eos = (metadata.get(f"{KEY}{token}_token_id") for token in ("bos", "eos"))
    return Tokenizer(backend, bos, eos, metadata.get(f"{KEY}add_bos_token", adds_bos))


def _byte_level(metadata: Mapping[str, Any], splitting: Splitting) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    merges = [tuple(merge.split(" ", 1)) for merge in metadata[f"{KEY}merges"]]
    backend = Tokenizer(models.BPE(_vocabulary(metadata), merges, ignore_merges=splitting.whole_words))
    if splitting.nfc:
        backend.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splitting.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    vocabulary = _vocabulary(metadata)
    unknown = metadata.get(f"{KEY}unknown_token_id")
    unk_token = None if unknown is None else metadata[f"{KEY}tokens"][unknown]
    merges = _merges(vocabulary, metadata)
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token=unk_token, fuse_unk=True, byte_fallback=True))
    prefixed = metadata.get(f"{KEY}add_space_prefix", True)
    if prefixed:
        # A space before the text, unless it begins with one or with a special token.
        backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    else:
        backend.normalizer = normalizers.Replace(" ", SPACE)
    strip = [decoders.Strip(" ", 1, 0)] if prefixed else []
    backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return backend


def _vocabulary(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Token -> id. SentencePiece files spell tokens of spaces alone with real spaces, all others with the visible sign."""
    spaced = metadata[f"{KEY}model"] == "llama"
    return {
        SPACE * len(token) if spaced and token and not token.strip(" ") else token: index
        for index, token in enumerate(metadata[f"{KEY}tokens"])
    }


def _merges(vocabulary: dict[str, int], metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The merges that a SentencePiece vocabulary implies: every way to cut a token into two tokens, best token first.

    A token's score is its rank; those the user defined come before all others, since SentencePiece never cuts them.
    """
    scores, types = metadata[f"{KEY}scores"], metadata[f"{KEY}token_type"]
    merges = []
    for token, index in vocabulary.items():
        if types[index] in (UNKNOWN, CONTROL, BYTE):
            continue
        rank = (0, float(index)) if types[index] == USER_DEFINED else (1, -scores[index])
        for cut in range(len(token) - 1, 0, -1):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((rank, left, right))
    merges.sort(key=lambda merge: merge[0])
    return [(left, right) for _, left, right in merges]


def _add_whole_tokens(backend: tokenizers.Tokenizer, metadata: Mapping[str, Any]) -> None:
    """Control tokens and those the user defined are found whole in a text, before anything else."""
    from tokenizers import AddedToken

    vocabulary = backend.get_vocab(with_added_tokens=False)
    typed = list(zip(metadata[f"{KEY}tokens"], metadata.get(f"{KEY}token_type", ()), strict=False))
    for wanted, special in ((CONTROL, True), (USER_DEFINED, False)):
        tokens = [
            AddedToken(token, normalized=False, special=special)
            for token, kind in typed
            if kind == wanted and token in vocabulary
        ]
        (backend.add_special_tokens if special else backend.add_tokens)(tokens)
