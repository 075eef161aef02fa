"""The families of checkpoints that can be loaded, each a config map and a weight map."""

from __future__ import annotations

from typing import Any

from ...errors import CheckpointError, closest
from .family import Family
from .gemma import GEMMA1, GEMMA2, GEMMA3
from .gpt2 import GPT2
from .gpt_neox import GPT_NEOX
from .llama import LLAMA, MISTRAL, QWEN2, QWEN3

FAMILIES: dict[str, Family] = {
    model_type: family
    for family in (GPT2, GPT_NEOX, LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA1, GEMMA2, GEMMA3)
    for model_type in family.model_types
}


def family_of(model_type: Any, where: str) -> Family:
    """The family that a `model_type` belongs to. Raises CheckpointError listing the known ones."""
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise CheckpointError(
            f"{where} has model_type {model_type!r}, wanted one of {known}{closest(str(model_type), FAMILIES)}."
        )
    return FAMILIES[model_type]


__all__ = ["FAMILIES", "Family", "family_of"]
