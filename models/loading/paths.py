"""Paths that users give: expanded, and refused in one sentence where they cannot be used."""

from __future__ import annotations

import reprlib
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import CheckpointError


def user_path(source: Any, role: str) -> Path:
    """The path, its ~ expanded. Raises CheckpointError, naming its role, for what is no path or cannot be looked up."""
    if not isinstance(source, str | PathLike) or not str(source):
        raise CheckpointError(f"{role} must be a path that is not empty, got {source!r}.")
    try:
        path = Path(source).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        cause = str(getattr(error, "strerror", None) or error).rstrip(".")
        raise CheckpointError(f"{role} {reprlib.repr(str(source))} cannot be looked up: {cause}.") from None
    return path


def make_folder(path: Path) -> Path:
    """The folder, made if need be. Raises CheckpointError where that cannot be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be made a folder: {cause}; choose another.") from None
    return path
