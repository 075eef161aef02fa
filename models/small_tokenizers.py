"""Two small tokenisers that need no files and no training: short pieces of characters, and words.

They have the interface of `models.loading.Tokenizer`, so a model whose `tokenizer` is one of them reads text:

    model.tokenizer = CharacterTokenizer.from_text("abracadabra")
    model("abra")
"""

from __future__ import annotations

import operator
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from .config.checks import is_whole
from .errors import ConfigError, InputError, closest

UNKNOWN = "<unk>"
BOS = "<bos>"
EOS = "<eos>"


class SmallTokenizer:
    """A fixed list of tokens. Subclasses say how a text is cut into pieces, and how pieces are joined.

    vocabulary: the tokens, whose places are their ids. Those named as unknown, BOS or EOS are special: text cannot spell them.
    unknown: the token for what is not in the vocabulary; None refuses such text.
    bos, eos: the tokens that begin and end a text; None where there is none. `adds_bos`: whether text begins with BOS unless a
        call says otherwise.
    """

    kind: ClassVar[str] = ""

    def __init__(
        self,
        vocabulary: Any,
        *,
        unknown: str | None = None,
        bos: str | None = None,
        eos: str | None = None,
        adds_bos: bool = False,
    ) -> None:
        self.vocabulary = _checked_vocabulary(vocabulary)
        self._ids = {token: index for index, token in enumerate(self.vocabulary)}
        self.unknown_token_id = self._special(unknown, "unknown")
        self.bos_token_id, self.eos_token_id = self._special(bos, "bos"), self._special(eos, "eos")
        if adds_bos and bos is None:
            raise InputError("adds_bos=True needs a bos token.")
        self.adds_bos = adds_bos
        self._spellable = self._ids.keys() - {token for token in (unknown, bos, eos) if token is not None}

    def _special(self, token: str | None, which: str) -> int | None:
        if token is not None and token not in self._ids:
            raise InputError(f"{which}={token!r} is not in the vocabulary of {self.vocab_size} tokens; add it there.")
        return None if token is None else self._ids[token]

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary, special ones included."""
        return len(self.vocabulary)

    def encode(self, text: str, prepend_bos: bool = False) -> list[int]:
        """Token ids of a text. Raises InputError for what the vocabulary cannot spell, where there is no unknown token."""
        if not isinstance(text, str):
            raise InputError(f"text must be a string, got {type(text).__name__}.")
        if prepend_bos and self.bos_token_id is None:
            raise InputError("prepend_bos=True, but this tokeniser has no BOS token.")
        ids = [self._id(piece, text) for piece in self._cut(text)]
        return [self.bos_token_id, *ids] if prepend_bos and self.bos_token_id is not None else ids

    def _id(self, piece: str, text: str) -> int:
        if piece in self._spellable:
            return self._ids[piece]
        if self.unknown_token_id is None:
            raise InputError(f"{piece!r} in {_shortened(text)} is not in the vocabulary; add it, or name an unknown token.")
        return self.unknown_token_id

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of token ids, special tokens included. Raises InputError for an id that is not in the vocabulary."""
        return self._join([self.token_string(index) for index in ids])

    def token_string(self, index: Any) -> str:
        """The text of one token by itself."""
        try:
            place = operator.index(index)
        except TypeError:
            raise InputError(f"a token id must be a whole number, got {index!r}.") from None
        if not 0 <= place < self.vocab_size:
            raise InputError(f"token id {place} is outside the tokeniser's vocabulary, 0 to {self.vocab_size - 1}.")
        return self.vocabulary[place]

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `small_tokenizer` makes the same tokeniser."""
        ids = {"unknown": self.unknown_token_id, "bos": self.bos_token_id, "eos": self.eos_token_id}
        special = {name: None if index is None else self.vocabulary[index] for name, index in ids.items()}
        return {"kind": self.kind, "vocabulary": list(self.vocabulary), **special, "adds_bos": self.adds_bos}

    def _cut(self, text: str) -> list[str]:
        raise NotImplementedError

    def _join(self, pieces: list[str]) -> str:
        raise NotImplementedError


class CharacterTokenizer(SmallTokenizer):
    """Tokens of one character, or of a few: the longest one that fits is taken from left to right, or, with greedy=False, none
    longer than a character. Decoding gives the text back, but for unknown characters."""

    kind = "characters"

    def __init__(
        self,
        vocabulary: Any,
        *,
        greedy: bool = True,
        unknown: str | None = None,
        bos: str | None = None,
        eos: str | None = None,
        adds_bos: bool = False,
    ) -> None:
        super().__init__(vocabulary, unknown=unknown, bos=bos, eos=eos, adds_bos=adds_bos)
        self.greedy = greedy
        self._longest = max(map(len, self._spellable), default=1) if greedy else 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `small_tokenizer` makes the same tokeniser."""
        return {**super().to_dict(), "greedy": self.greedy}

    @classmethod
    def from_text(
        cls,
        text: str,
        *,
        n_pairs: Any = 0,
        greedy: bool = True,
        unknown: bool = False,
        special: bool = False,
        adds_bos: bool = False,
    ) -> CharacterTokenizer:
        """A tokeniser of every character of a text, in order of code points, and of its `n_pairs` most frequent pairs.

        unknown: add a token for characters that the text lacks. special: add BOS and EOS tokens.
        """
        if not isinstance(text, str) or not text:
            raise InputError(f"text must be a string that is not empty, got {text!r}.")
        if not is_whole(n_pairs) or n_pairs < 0:
            raise InputError(f"n_pairs must be a whole number of 0 or more, got {n_pairs!r}.")
        counted = Counter(text[start : start + 2] for start in range(len(text) - 1))
        pairs = sorted(counted, key=lambda pair: (-counted[pair], pair))[:n_pairs]
        extra, options = _extra_tokens(unknown, special)
        return cls([*extra, *sorted(set(text)), *pairs], greedy=greedy, adds_bos=adds_bos, **options)

    def _cut(self, text: str) -> list[str]:
        pieces, start = [], 0
        while start < len(text):
            lengths = range(min(self._longest, len(text) - start), 0, -1)
            length = next((length for length in lengths if text[start : start + length] in self._spellable), 1)
            pieces.append(text[start : start + length])
            start += length
        return pieces

    def _join(self, pieces: list[str]) -> str:
        return "".join(pieces)


class WordTokenizer(SmallTokenizer):
    """Tokens are words and single punctuation marks. Decoding sets one space between words, and none before punctuation."""

    kind = "words"

    @classmethod
    def from_text(
        cls, text: str, *, n_words: Any = None, unknown: bool = False, special: bool = False, adds_bos: bool = False
    ) -> WordTokenizer:
        """A tokeniser of the words of a text, the most frequent first; of the first `n_words` only where that is given.

        unknown: add a token for words that the vocabulary lacks. special: add BOS and EOS tokens.
        """
        counted = Counter(_words(text)) if isinstance(text, str) else Counter()
        if not counted:
            raise InputError(f"text must be a string with at least one word, got {text!r}.")
        if n_words is not None and (not is_whole(n_words) or n_words < 1):
            raise InputError(f"n_words must be a whole number of 1 or more, or None, got {n_words!r}.")
        words = sorted(counted, key=lambda word: (-counted[word], word))[:n_words]
        extra, options = _extra_tokens(unknown, special)
        return cls([*extra, *words], adds_bos=adds_bos, **options)

    def _cut(self, text: str) -> list[str]:
        return _words(text)

    def _join(self, pieces: list[str]) -> str:
        return "".join(piece if not place or _is_mark(piece) else f" {piece}" for place, piece in enumerate(pieces))


KINDS: dict[str, type[SmallTokenizer]] = {cls.kind: cls for cls in (CharacterTokenizer, WordTokenizer)}


def small_tokenizer(data: Any) -> SmallTokenizer:
    """The tokeniser that `to_dict` describes. Raises ConfigError for another kind or for options it does not have."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"a tokeniser must be an object with a kind and options, got {type(data).__name__}.")
    options = dict(data)
    kind = options.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"tokeniser kind {kind!r} is not known; known are {', '.join(KINDS)}{closest(str(kind), KINDS)}.")
    try:
        return KINDS[kind](**options)
    except (TypeError, InputError) as error:
        raise ConfigError(f"the {kind} tokeniser's options are wrong: {error}") from None


def _words(text: str) -> list[str]:
    """Words, with the apostrophes and hyphens inside them, and every other mark by itself; white space only separates."""
    letter = f"[\\w{_combining_marks()}]"
    return re.findall(rf"{letter}+(?:['’-]{letter}+)*|[^\w\s]", text)


@lru_cache
def _combining_marks() -> str:
    """Characters that belong to the letter before them: vowel signs and accents, which `\\w` leaves out."""
    return "".join(char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) in ("Mn", "Mc"))


def _is_mark(piece: str) -> bool:
    return len(piece) == 1 and not piece.isalnum() and piece != "_"


def _extra_tokens(unknown: bool, special: bool) -> tuple[list[str], dict[str, str | None]]:
    chosen = {"unknown": UNKNOWN if unknown else None, "bos": BOS if special else None, "eos": EOS if special else None}
    return [token for token in chosen.values() if token is not None], chosen


def _checked_vocabulary(vocabulary: Any) -> tuple[str, ...]:
    is_list = isinstance(vocabulary, Sequence) and not isinstance(vocabulary, str)
    if not is_list or not all(isinstance(token, str) and token for token in vocabulary):
        raise InputError("vocabulary must be a list of tokens, in the order of their ids, each a string that is not empty.")
    if not vocabulary:
        raise InputError("vocabulary is empty; give at least one token.")
    repeated = [token for token, times in Counter(vocabulary).items() if times > 1]
    if repeated:
        raise InputError(f"token {repeated[0]!r} is twice in the vocabulary; ids must be unique.")
    return tuple(vocabulary)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
