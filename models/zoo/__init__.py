"""Models that come with the package, in its own format: one folder each, with config.json and model.safetensors."""

from __future__ import annotations

from pathlib import Path

from ..errors import CheckpointError


def zoo_folder(name: str) -> Path:
    """The folder of a shipped model. Raises CheckpointError where this installation lacks it."""
    folder = Path(__file__).parent / name
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"model '{name}' is shipped with the package, but {folder} is not there; reinstall the package.")
    return folder
