"""Text to token ids and back, on the `tokenizers` library. Special tokens are added only where a call asks for them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, InputError
from .json_file import read_json, write_atomically, write_json

if TYPE_CHECKING:
    import tokenizers

SPACE = "\u2581"
"""How SentencePiece vocabularies spell a space."""


class Tokenizer:
    """A tokeniser with its BOS and EOS ids. `adds_bos` says whether its own model is used with a leading BOS.

    BERT calls them [CLS] and [SEP], and every text that begins with the one ends with the other: `closes`.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        adds_bos: bool = False,
        closes: bool = False,
    ) -> None:
        self.backend, self.bos_token_id, self.eos_token_id = backend, bos_token_id, eos_token_id
        self.adds_bos = adds_bos and bos_token_id is not None
        self.closes = closes and eos_token_id is not None
        backend.no_padding()
        backend.no_truncation()

    def encode(self, text: str, prepend_bos: bool = False) -> list[int]:
        """Token ids of a text. Special tokens spelled out in it are recognised; none are added but BOS, where asked for.

        With BOS comes EOS where the tokeniser `closes` texts.
        """
        if not isinstance(text, str):
            raise InputError(f"text must be a string, got {type(text).__name__}.")
        if prepend_bos and self.bos_token_id is None:
            raise InputError("prepend_bos=True, but this tokeniser has no BOS token.")
        ids = self.backend.encode(text, add_special_tokens=False).ids
        if prepend_bos and self.bos_token_id is not None:
            closing = [self.eos_token_id] if self.closes and self.eos_token_id is not None else []
            return [self.bos_token_id, *ids, *closing]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, special tokens included. Raises InputError for an id that is not in the vocabulary."""
        ids = list(ids)
        for index in ids:
            self._raw(index)
        return self.backend.decode(ids, skip_special_tokens=False)

    def token_string(self, index: int) -> str:
        """The text of one token by itself, its leading space kept; bytes that are no whole character show as U+FFFD."""
        raw = self._raw(index)
        if index in self._added:
            return raw
        if self._byte_level:
            byte_of = byte_alphabet()
            return bytes(byte_of[char] for char in raw).decode(errors="replace") if set(raw) <= byte_of.keys() else raw
        if len(raw) == 6 and raw.startswith("<0x") and raw.endswith(">"):
            return bytes([int(raw[3:5], 16)]).decode(errors="replace")
        return raw.replace(SPACE, " ")

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary, added ones included."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json, from which `from_folder` makes the same tokeniser."""
        write_atomically(folder / "tokenizer.json", lambda path: path.write_text(self.backend.to_str(), encoding="utf-8"))
        tokens = {"bos_token": self.bos_token_id, "eos_token": self.eos_token_id}
        named = {key: None if index is None else self._raw(index) for key, index in tokens.items()}
        added = {"add_bos_token": self.adds_bos, "add_eos_token": self.closes}
        write_json(folder / "tokenizer_config.json", {**named, **added})

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer | None:
        """The tokeniser of a checkpoint folder, from tokenizer.json and tokenizer_config.json; None where it has none."""
        from tokenizers import Tokenizer as Backend

        if not (folder / "tokenizer.json").is_file():
            return None
        try:
            backend = Backend.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"{folder / 'tokenizer.json'} is not a tokeniser that can be read: {error}.") from None
        config_file = folder / "tokenizer_config.json"
        config = read_json(config_file) if config_file.is_file() else {}
        bos, eos = (
            _token_id(backend, config.get(f"{first}_token") or config.get(f"{second}_token"))
            for first, second in (("bos", "cls"), ("eos", "sep"))
        )
        backend.no_padding()
        around = backend.encode("a", add_special_tokens=True).ids
        adds_bos, closes = config.get("add_bos_token"), config.get("add_eos_token")
        adds_bos = around[:1] == [bos] if adds_bos is None else adds_bos
        closes = around[:1] == [bos] and around[-1:] == [eos] if closes is None else closes
        return cls(backend, bos, eos, bool(adds_bos), bool(closes))

    def _raw(self, index: int) -> str:
        raw = self.backend.id_to_token(int(index)) if int(index) >= 0 else None
        if raw is None:
            raise InputError(f"token id {index} is outside the tokeniser's vocabulary, 0 to {self.vocab_size - 1}.")
        return raw

    @cached_property
    def _added(self) -> set[int]:
        return set(self.backend.get_added_tokens_decoder())

    @cached_property
    def _byte_level(self) -> bool:
        """Whether the vocabulary is spelled in the byte alphabet, which the decoder then undoes."""
        return self.backend.decoder is not None and b"ByteLevel" in self.backend.decoder.__getstate__()


def _token_id(backend: tokenizers.Tokenizer, token: Any) -> int | None:
    """The id of a special token, which tokenizer_config.json gives as a string or as a dict with its content."""
    content = token.get("content") if isinstance(token, dict) else token
    return backend.token_to_id(content) if isinstance(content, str) else None


def byte_alphabet() -> dict[str, int]:
    """The printable character by which a byte-level vocabulary spells each byte (Radford et al. 2019).

    Bytes that print stand for themselves; the rest take the code points from 256 on, in order.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    hidden = [byte for byte in range(256) if byte not in printable]
    return {**alphabet, **{chr(256 + place): byte for place, byte in enumerate(hidden)}}
