"""What every run needs: seeds, a manifest, progress, resume, and files that are never half written."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import torch

from .errors import InterpError, whole_number

T = TypeVar("T")


@dataclass(frozen=True)
class Manifest:
    """How a result was made. `finished()` adds the seconds, `write(folder)` stores it as manifest.json."""

    model: str
    command: str
    seed: int | None = None
    dtype: str = ""
    device: str = ""
    prepend_bos: bool | None = None
    prompts: dict[str, Any] = field(default_factory=dict)
    """`PromptPairs.record()` or the like for each prompt set: counts, BOS, sha256 of the ids."""
    weights_sha256: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    threads: int = 0
    started: str = ""
    seconds: float | None = None
    units: dict[str, float] = field(default_factory=dict)
    """Seconds each part took to compute, as measured in the run that computed it."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Parts that are not defined for this model, and why."""

    @classmethod
    def start(cls, model: Any, name: str, **fields: Any) -> Manifest:
        """A manifest for a run of `model` that begins now; `fields` fill the rest."""
        parameter = next(iter(model.parameters()))
        return cls(
            model=name,
            command=shlex.join(sys.orig_argv),
            dtype=str(parameter.dtype).removeprefix("torch."),
            device=str(parameter.device),
            weights_sha256=fingerprint(model),
            versions=versions(),
            threads=torch.get_num_threads(),
            started=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            **fields,
        )

    def finished(self, **fields: Any) -> Manifest:
        """A copy that knows how long the run took, with further fields filled in."""
        elapsed = datetime.now(timezone.utc) - datetime.fromisoformat(self.started)
        return replace(self, seconds=round(elapsed.total_seconds(), 3), **fields)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, folder: str | Path) -> Path:
        return write_json(Path(folder) / "manifest.json", self.to_dict())


def versions() -> dict[str, str]:
    """Versions of Python, torch, numpy and this toolkit."""
    from importlib import metadata

    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("attention-atlas", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def fingerprint(model: Any) -> str:
    """Sha256 over the names, shapes and bytes of all parameters (about 1 GB/s)."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        digest.update(parameter.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def checked_seed(seed: int) -> int:
    """A seed that every generator takes. Raises InterpError for one that is no whole number of 64 bits."""
    number = whole_number(seed)
    if number is None or not -(2**63) <= number < 2**64:
        raise InterpError(f"seed must be a whole number of at most 64 bits (from -2**63 to 2**64 - 1), got {seed!r}.")
    return number


def generator(seed: int) -> torch.Generator:
    """A generator of its own; the global one stays as it is. Raises InterpError as `checked_seed` does."""
    return torch.Generator().manual_seed(checked_seed(seed))


def progress(
    items: Iterable[T] | None = None, *, total: int | None = None, description: str = "", enabled: bool | None = None
) -> Any:
    """A tqdm bar over `items`, or one to `update()` by hand when there are none.

    `enabled=None` shows it on a terminal and in a notebook only.
    """
    from tqdm.auto import tqdm

    shown = _interactive() if enabled is None else enabled
    return tqdm(items, total=total, desc=description, disable=not shown, leave=False)


def _interactive() -> bool:
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"
    return in_notebook or sys.stderr.isatty()


def key_of(**inputs: Any) -> str:
    """Sha256 of everything a result depends on, as plain data."""
    text = json.dumps(plain(inputs), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class UnitResult:
    """One finished part of a run: its value as plain data, what it cost, and whether it was taken from disk."""

    value: Any
    seconds: float
    resumed: bool


def cached_result(path: str | Path, key: str, compute: Callable[[], Any], *, force: bool = False) -> UnitResult:
    """The JSON value stored at `path` if it was made from the same `key`, else `compute()`, which is then stored.

    The value is always in plain-data form, so that a resumed run and a first run see the same thing. A damaged or foreign file
    is computed again.
    """
    path = Path(path)
    if not force and (stored := _stored(path, key)) is not None:
        return UnitResult(stored["value"], float(stored["seconds"]), resumed=True)
    start = time.perf_counter()
    value = plain(compute())
    seconds = round(time.perf_counter() - start, 3)
    write_json(path, {"key": key, "seconds": seconds, "value": value}, indent=None)
    return UnitResult(value, seconds, resumed=False)


def _stored(path: Path, key: str) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(data, dict) and {"key", "seconds", "value"} <= set(data)
    return data if whole and data["key"] == key else None


def plain(value: Any) -> Any:
    """JSON-ready: tensors and arrays become lists, dataclasses dicts, NaN and infinities None, as JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(item) for item in items]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)


def read_json(path: str | Path, what: str, error: type[InterpError]) -> Any:
    """Parse a JSON file. Raises `error`, naming the file as `what`, when there is none or it is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise error(f"{what} {path} does not exist.") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{what} {path} cannot be read as JSON: {problem}.") from None


def write_json(path: str | Path, value: Any, indent: int | None = 2) -> Path:
    """Write `plain(value)` as strict JSON, atomically."""
    return write_text(path, json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False) + "\n")


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file in one step: a reader sees the old content or the new, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
