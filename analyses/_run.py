"""One run of an analysis on a model: loading, parts that are skipped when they are already there, and the manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from analyses._cli import RunConfig
from interp.errors import InterpError
from interp.run import Manifest, cached_result, key_of
from models import HookedTransformer, load_model

UNITS = "units"
"""Folder inside the output folder that holds finished parts."""


class Run:
    """A loaded model, an output folder, and what has been done so far.

    `unit(name, compute, **inputs)` returns the stored value of a part when model, code and inputs are those it was made from.
    """

    def __init__(self, config: RunConfig, analysis: str = "") -> None:
        self.config = config
        self.folder = config.out or Path("out") / Path(config.model).name / analysis
        if self.folder.exists() and not self.folder.is_dir():
            raise InterpError(f"--out {self.folder} is a file; give a folder.")
        self.model: HookedTransformer = load_model(config.model)
        self.model.requires_grad_(False)
        self.prompts: dict[str, Any] = {}
        self.prepend_bos: bool | None = None
        self.left_out: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        self._manifest = Manifest.start(self.model, config.model, seed=config.seed, settings=_settings(config))

    def unit(self, name: str, compute: Callable[[], Any], **inputs: Any) -> Any:
        """`compute()` as plain data, or the value an earlier run stored for the same model, code and inputs.

        What a tokeniser does shows in the inputs, which name the hash of the token ids.
        """
        made_from = {"config": self.model.cfg.to_dict(), "weights": self._manifest.weights_sha256, "code": code_version()}
        key = key_of(model=self.config.model, **made_from, inputs=inputs)
        found = cached_result(self.folder / UNITS / f"{name}.json", key, compute, force=self.config.force)
        self._seconds[name] = found.seconds
        return found.value

    def manifest(self) -> dict[str, Any]:
        """The manifest as it stands."""
        return self._finished().to_dict()

    def write_manifest(self) -> Path:
        return self._finished().write(self.folder)

    def _finished(self) -> Manifest:
        found = {"prompts": self.prompts, "prepend_bos": self.prepend_bos, "units": self._seconds, "left_out": self.left_out}
        return self._manifest.finished(**found)


def _settings(config: RunConfig) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()}


def tokens_record(tokens: Tensor, source: str, prepend_bos: bool | None) -> dict[str, Any]:
    """What a manifest keeps of sequences: shape, source, BOS, and the sha256 of their ids."""
    text = json.dumps(tokens.tolist(), separators=(",", ":"))
    digest = sha256(text.encode()).hexdigest()
    return {"shape": list(tokens.shape), "source": source, "prepend_bos": prepend_bos, "sha256": digest}


@cache
def code_version() -> str:
    """Sha256 over the source of the toolkit: a stored part is not reused by code that would make another."""
    digest = sha256()
    root = Path(__file__).resolve().parent.parent
    for folder in ("interp", "models", "analyses"):
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
