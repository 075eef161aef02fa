"""Reading and writing the JSON files of a checkpoint."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import CheckpointError


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises CheckpointError where the file holds anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must hold a JSON object, got {type(data).__name__}.")
    return data


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers see the old file or the whole new one.

    Raises CheckpointError where the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        write(temporary)
        os.chmod(temporary, mode)  # some writers make their file unreadable to others
        os.replace(temporary, path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON object atomically."""
    write_atomically(
        path, lambda temporary: temporary.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    )
