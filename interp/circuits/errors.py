"""The error that users of the circuit analyses meet, and the clause that suggests what they meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..errors import InterpError


class CircuitError(InterpError):
    """A graph, metric, selection or evaluation that makes no sense for this model and these pairs."""


def near(word: str, candidates: Iterable[str]) -> str:
    """A clause naming the nearest candidates, whatever their case, or nothing."""
    by_lower_case = {name.lower(): name for name in candidates}
    found = [by_lower_case[name] for name in difflib.get_close_matches(word.lower(), list(by_lower_case), n=3, cutoff=0.6)]
    return f" (did you mean {' or '.join(repr(name) for name in found)}?)" if found else ""
