"""From scores to a circuit: the strongest edges, those above a threshold, or a path-connected set; and pruning dead ends."""

from __future__ import annotations

import heapq
import math
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from ..errors import whole_number
from .checks import check_type
from .circuit import Circuit
from .errors import CircuitError
from .graph import Graph
from .scores import EdgeScores, ranking

ABLATIONS = ("patching", "zero", "mean")


def select(
    scores: EdgeScores,
    *,
    top: int | None = None,
    threshold: float | None = None,
    greedy: int | None = None,
    signed: bool = False,
) -> Circuit:
    """Keep edges by score; give exactly one of

    top: the n best edges.
    threshold: every edge whose magnitude, or benefit, is at least this.
    greedy: n edges grown from the logits, each the best one into a node already reached, so that every edge leads to the
        logits (the selection of EAP-IG, Hanna et al. 2024, arXiv 2403.17806). Fewer than n when nothing more can be reached.
    signed: rank by how much an edge helps the metric (`EdgeScores.benefit`) instead of by magnitude. Ties are broken in graph
        order, so the result is deterministic.
    """
    check_type("scores", scores, EdgeScores)
    chosen = {"top": top, "threshold": threshold, "greedy": greedy}
    given = [name for name, value in chosen.items() if value is not None]
    if len(given) != 1:
        raise CircuitError(f"select needs exactly one of top, threshold and greedy, got {', '.join(given) or 'none'}.")
    by = "benefit" if signed else "magnitude"
    if threshold is not None:
        _check_threshold(threshold)
        keys = scores.benefit if signed else scores.values.abs()
        mask = (keys >= threshold).cpu() & scores.graph.allowed
        return Circuit(scores.graph, mask, f"{by} at least {threshold:g}")
    n = _checked_size(top if greedy is None else greedy, given[0], scores.graph)
    mask = torch.zeros_like(scores.graph.allowed)
    if greedy is not None:
        return Circuit(scores.graph, _grow(scores, n, signed, mask), f"greedy from the logits, {n} edges by {by}")
    mask.view(-1)[ranking(scores, signed=signed)[:n]] = True
    return Circuit(scores.graph, mask, f"top {n} edges by {by}")


def _check_threshold(threshold: Any) -> None:
    is_number = hasattr(threshold, "__float__") and not isinstance(threshold, bool)
    if not is_number or math.isnan(threshold):
        raise CircuitError(f"threshold must be a number, got {threshold!r}.")


def _checked_size(n: int | None, name: str, graph: Graph) -> int:
    number = whole_number(n)
    if number is None or not 0 <= number <= graph.n_edges:
        raise CircuitError(f"{name} must be a whole number of edges between 0 and {graph.n_edges}, got {n!r}.")
    return number


def _grow(scores: EdgeScores, n: int, signed: bool, mask: Bool[Tensor, "writers readers"]) -> Bool[Tensor, "writers readers"]:
    """Repeatedly take the best edge into the readers of reached nodes; its writer is then reached too."""
    graph = scores.graph
    keys = (-(scores.benefit if signed else scores.values.abs())).cpu().tolist()
    edges_into = [writers.nonzero()[:, 0].tolist() for writers in graph.allowed.T]
    readers_of = [readers.nonzero()[:, 0].tolist() for readers in graph.feeds.T]
    heap: list[tuple[float, int, int]] = []
    opened: set[int] = set()

    def open_readers(readers: list[int]) -> None:
        for reader in readers:
            if reader not in opened:
                opened.add(reader)
                for writer in edges_into[reader]:
                    heapq.heappush(heap, (keys[writer][reader], writer, reader))

    open_readers([graph.reader("logits")])
    for _ in range(n):
        if not heap:
            break
        _, writer, reader = heapq.heappop(heap)
        mask[writer, reader] = True
        open_readers(readers_of[writer])
    return mask


def prune(circuit: Circuit, ablation: str = "patching") -> Circuit:
    """Drop every edge that lies on no path from the input to the logits. Pruning twice changes nothing more.

    Under patching the pruned circuit computes the same logits: a writer that no kept path reaches from the input has its
    corrupt value anyway. Under zero and mean ablation such a writer still computes something from its ablated inputs, so
    dropping its edges would change what the circuit does, and CircuitError says which edge that is; edges that merely lead
    nowhere are dropped under every ablation.

    Where a norm divides all heads by one scale (behind the attention in sandwich, output-norm and post-norm blocks, over all
    queries or keys, over groups of outputs), a head outside every path still moves the others a little, and pruning is exact
    only up to that.
    """
    check_type("circuit", circuit, Circuit)
    if ablation not in ABLATIONS:
        raise CircuitError(f"ablation must be one of {', '.join(ABLATIONS)}, got {ablation!r}.")
    leads = _leads_to_logits(circuit)
    kept = circuit.mask & leads
    pruned = kept & _reached_from_input(circuit)[:, None]
    if ablation != "patching" and not torch.equal(pruned, kept):
        writer, reader = (kept & ~pruned).nonzero()[0].tolist()
        raise CircuitError(
            f"pruning {circuit.graph.edge_name(writer, reader)} would change the circuit's output under {ablation} ablation, "
            f"because {circuit.graph.writers[writer].name} computes something even from ablated inputs; prune under patching."
        )
    return Circuit(circuit.graph, pruned, f"{circuit.how}, pruned".lstrip(", "))


def _reached_from_input(circuit: Circuit) -> Bool[Tensor, " writers"]:
    """Writers that depend on the input through kept edges only."""
    graph, feeds = circuit.graph, circuit.graph.feeds.float()
    reached = torch.zeros(len(graph.writers), dtype=torch.bool)
    reached[0] = True
    while True:
        readers = (circuit.mask & reached[:, None]).any(0)
        more = reached | (readers.float() @ feeds > 0)
        if torch.equal(more, reached):
            return reached
        reached = more


def _leads_to_logits(circuit: Circuit) -> Bool[Tensor, "1 readers"]:
    """Readers from which the logits can be reached through kept edges."""
    graph, feeds = circuit.graph, circuit.graph.feeds.float()
    leads = torch.zeros(len(graph.readers), dtype=torch.bool)
    leads[graph.reader("logits")] = True
    while True:
        writers = (circuit.mask & leads).any(1)
        more = leads | (feeds @ writers.float() > 0)
        if torch.equal(more, leads):
            return leads[None]
        leads = more
