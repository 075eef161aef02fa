"""Errors that users of the analyses meet. A message is one sentence: which argument, what was got and wanted, what to do."""

from __future__ import annotations

import operator
from typing import Any


class InterpError(ValueError):
    """An analysis was asked for something it cannot do."""


class PromptError(InterpError):
    """Tokens, masks or prompts that an analysis cannot use."""


class WeightsError(InterpError):
    """A model whose weights an analysis cannot read, or that do not fit together."""


class ResultError(InterpError):
    """A result that cannot be built, or a file that does not hold the result it should."""


def whole_number(value: Any) -> int | None:
    """An int, or what stands for one exactly, such as a NumPy integer; None for anything else, True and False included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    """A list of whole numbers. Raises InterpError, naming the argument, for anything else."""
    try:
        found = [whole_number(value) for value in values]
    except TypeError:
        raise InterpError(f"{name} must be a list of whole numbers, such as [{values!r}], got {values!r}.") from None
    if isinstance(values, str) or None in found:
        raise InterpError(f"{name} must be a list of whole numbers, got {values!r}.")
    return tuple(number for number in found if number is not None)


def counted(n: int, what: str) -> str:
    """ "1 pair", "2 pairs", "1,000 pairs"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
