"""The kinds of GGUF file that can be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import CheckpointError, closest
from .kind import Kind
from .llama_like import LLAMA_LIKE
from .others import OTHERS

KINDS = {kind.architecture: kind for kind in (*LLAMA_LIKE, *OTHERS)}

IGNORED = (r"^rope_(freqs|factors_long|factors_short)\.weight$", r"\.attn_rot_embd$", r"^cls\.")
"""Tensors that are read apart, or not at all."""


def kind_of(metadata: Mapping[str, Any], where: str) -> Kind:
    """The kind of a file. Raises CheckpointError listing the known ones, or where the file is one part of several."""
    if metadata.get("split.count", 1) not in (0, 1):
        raise CheckpointError(
            f"{where} is one of {metadata['split.count']} parts of a split model; merge them into one file first."
        )
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in KINDS:
        known = ", ".join(KINDS)
        raise CheckpointError(f"{where} is of kind {architecture!r}, wanted one of {known}{closest(str(architecture), KINDS)}.")
    return KINDS[architecture]


__all__ = ["IGNORED", "KINDS", "Kind", "kind_of"]
