"""The header of a GGUF file: metadata, and where each tensor lies. The file is mapped, so data is read only when asked for.

Layout: "GGUF", version, counts, key-value pairs, tensor infos, then the tensors, each aligned; all little-endian. Parsed here
because vocabularies of a quarter of a million strings take `gguf.GGUFReader` ten seconds and this a fraction of one.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError

VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""struct codes by GGUF value type."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: its shape with the slowest axis first, its GGML type number, and its place after the header, in bytes."""

    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True)
class Header:
    """Metadata by key, tensors by name, and the offset of the first tensor in the file, in bytes."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    data_start: int


def open_gguf(path: Path) -> mmap.mmap:
    """The file, mapped for reading. Raises CheckpointError where it is empty or not GGUF."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise CheckpointError(f"{path} is not a GGUF file: it does not begin with 'GGUF'.")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from None


def read_header(path: Path, data: mmap.mmap) -> Header:
    """Parse the header. Raises CheckpointError where the file ends inside it, or is of a version that is not known."""
    try:
        return _Parser(path, data).header()
    except CheckpointError:
        raise
    except (struct.error, ValueError, TypeError, KeyError, ArithmeticError, MemoryError, RecursionError):
        raise CheckpointError(f"{path} is damaged or incomplete: its header cannot be read.") from None


class _Parser:
    """Reads one value after the other from a mapped file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at = path, data, 4

    def header(self) -> Header:
        if (version := self.scalar("I")) not in VERSIONS:
            raise CheckpointError(
                f"{self.path} is GGUF version {version}, wanted {' or '.join(map(str, VERSIONS))}, little-endian."
            )
        n_tensors, n_pairs = self.scalar("Q"), self.scalar("Q")
        metadata = {}
        for _ in range(n_pairs):
            key = self.string()
            metadata[key] = self.value(self.scalar("I"))
        tensors = {}
        for _ in range(n_tensors):
            name = self.string()
            tensors[name] = self.tensor_info()
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int):
            raise ValueError
        return Header(metadata, tensors, self.at + -self.at % alignment)

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def string(self) -> str:
        length = self.scalar("Q")
        start, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise ValueError
        return self.data[start : self.at].decode("utf-8", errors="surrogateescape")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        return self.array() if kind == ARRAY else self.scalar(SCALARS[kind])

    def array(self) -> list[Any]:
        kind, length = self.scalar("I"), self.scalar("Q")
        if length > len(self.data) - self.at:
            raise ValueError
        if kind in (STRING, ARRAY):
            return [self.value(kind) for _ in range(length)]
        values = np.frombuffer(self.data, np.dtype(SCALARS[kind]).newbyteorder("<"), length, self.at)
        self.at += values.nbytes
        return values.tolist()

    def tensor_info(self) -> TensorInfo:
        shape = [self.scalar("Q") for _ in range(self.scalar("I"))]
        return TensorInfo(tuple(reversed(shape)), self.scalar("I"), self.scalar("Q"))
