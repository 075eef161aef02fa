"""Errors that users of the analyses meet. A message is one sentence: which argument, what was got and wanted, what to do."""

from __future__ import annotations


class InterpError(ValueError):
    """An analysis was asked for something it cannot do."""


class PromptError(InterpError):
    """Tokens, masks or prompts that an analysis cannot use."""


class WeightsError(InterpError):
    """A model whose weights an analysis cannot read, or that do not fit together."""


class ResultError(InterpError):
    """A result that cannot be built, or a file that does not hold the result it should."""
