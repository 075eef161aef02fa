"""Errors that users meet. Each message is one sentence: which argument, what was got, what was wanted, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A model configuration that contradicts itself or names something unknown."""


class HookError(ValueError):
    """A hook that does not exist, cannot run, or returned something of the wrong shape."""


class InputError(ValueError):
    """Tokens, masks or text that the model cannot take."""


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged, unsafe, or of an unknown kind."""


def closest(word: str, candidates: Iterable[str], n: int = 3) -> str:
    """A clause that names the nearest candidates, or nothing: `; did you mean 'a' or 'b'?` without the question mark."""
    near = difflib.get_close_matches(word, list(candidates), n=n, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(name) for name in near)}?)" if near else ""
