"""How previous-token heads reach induction heads in a traced circuit: by keys, as in the known circuit, or otherwise.

An induction head finds the token that followed an earlier occurrence of the present one because a previous-token head has
written, at each position, which token came before; the induction head reads that with its keys (K-composition, Elhage et al.
2021, "A Mathematical Framework for Transformer Circuits").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interp.circuits import EdgeScores

PORTS = ("k", "q", "v")


@dataclass(frozen=True)
class Composition:
    """Edges from previous-token heads into one reader kind of later induction heads, strongest first: (name, score)."""

    port: str
    edges: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        return sum(score for _, score in self.edges)

    @property
    def strength(self) -> float:
        """Sum of magnitudes: edges of opposite sign do not cancel."""
        return sum(abs(score) for _, score in self.edges)


def compositions(heads: dict[str, Any], scores: EdgeScores) -> dict[str, Composition]:
    """Scores of the edges from heads labelled previous-token to heads labelled induction, by reader kind."""
    senders = _labelled(heads, "previous-token")
    receivers = _labelled(heads, "induction")
    return {port: Composition(port, _edges(scores, senders, receivers, port)) for port in PORTS}


def composition_sentences(heads: dict[str, Any], scores: EdgeScores, shown: int = 4) -> list[str]:
    """What the edges say, in words; one sentence saying what is missing where there is no such pair of heads."""
    found = compositions(heads, scores)
    if not any(part.edges for part in found.values()):
        return ["No head labelled previous-token stands before one labelled induction, so there is no such composition to see."]
    strongest = max(found.values(), key=lambda part: part.strength)
    share = strongest.strength / (sum(part.strength for part in found.values()) or 1.0)
    totals = ", ".join(f"{part.total:+.3g} into their {_WORDS[port]}" for port, part in found.items())
    edges = ", ".join(f"{name} ({score:+.3g})" for name, score in strongest.edges[:shown])
    verdict = (
        f"Previous-token heads compose into the induction heads by {strongest.port.upper()}: {share:.0%} of what reaches them "
        f"from there goes into their {_WORDS[strongest.port]}."
        if share > 0.5
        else "Previous-token heads reach the induction heads by no one way above all."
    )
    return [verdict, f"Their edges sum to {totals} (corrupt - clean). Strongest: {edges}."]


_WORDS = {"k": "keys", "q": "queries", "v": "values"}


def _labelled(heads: dict[str, Any], label: str) -> list[tuple[int, int]]:
    return [(head["layer"], head["head"]) for head in heads["heads"] if label in head["labels"]]


def _edges(
    scores: EdgeScores, senders: list[tuple[int, int]], receivers: list[tuple[int, int]], port: str
) -> tuple[tuple[str, float], ...]:
    graph = scores.graph
    readers = dict.fromkeys((layer, graph.reader_of(layer, head, port)) for layer, head in receivers)
    names = [f"a{a}.h{sender}->{reader}" for a, sender in senders for b, reader in readers if a < b and reader is not None]
    return tuple(sorted(((name, scores[name]) for name in names), key=lambda edge: -abs(edge[1])))
