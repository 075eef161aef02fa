"""Edge scores: one signed number per edge, and the record of how they were made."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from ..errors import counted
from .errors import CircuitError
from .graph import Graph

if TYPE_CHECKING:
    import pandas

DIFFERENCE = "corrupt-clean"
REPR_ROWS, HTML_ROWS = 5, 20


@dataclass(frozen=True)
class ScoreRecord:
    """How scores were made. A score is the effect on the metric of moving one edge from its clean to its corrupt value."""

    method: str = "unknown"
    metric: str = "unknown"
    higher_is_better: bool | None = None
    """Whether a higher metric means a better answer; None where that is not known."""
    difference: str = DIFFERENCE
    ungrouped: bool = False
    """Whether keys and values were given to each query head of a grouped-query model."""
    steps: int | None = None
    rule: str | None = None
    """Integration steps and rule of integrated gradients."""
    n_pairs: int = 0
    metric_clean: float | None = None
    metric_corrupt: float | None = None
    model: str = ""
    d_model: int | None = None
    dtype: str = ""
    """The model's dtype; scores are in at least float32."""
    seed: int | None = None
    """None: nothing in the method is random."""
    prepend_bos: bool | None = None
    prompts: dict[str, Any] = field(default_factory=dict)
    """`PromptPairs.record()`: counts, lengths, source, and the hash of the token ids."""

    additive: bool = True
    """Whether a writer's outgoing EAP scores sum to its attribution-patching score, and the input's outgoing EAP-IG scores to
    the change of the metric, up to the error of integration. False for post-norm blocks: their norm scales are taken as given."""

    note: str = ""
    """Which layers are not read as attention is, and why; empty where all are."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class EdgeScore:
    """One edge and its score."""

    edge: str
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class EdgeScores:
    """Signed scores [writers, readers] on a graph; 0 where there is no edge. Averaged over pairs, summed over positions.

    Raises CircuitError when the shape is not the graph's, when a score is not finite, or when a non-edge has one.
    """

    graph: Graph
    values: Float[Tensor, "writers readers"]
    record: ScoreRecord = ScoreRecord()

    def __post_init__(self) -> None:
        wanted = (len(self.graph.writers), len(self.graph.readers))
        if tuple(self.values.shape) != wanted:
            raise CircuitError(f"scores must have shape {wanted} [writers, readers], got {tuple(self.values.shape)}.")
        if not self.values.isfinite().all():
            writer, reader = (~self.values.isfinite()).nonzero()[0].tolist()
            raise CircuitError(f"the score of edge {self.graph.edge_name(writer, reader)} is not finite; check the weights.")
        if self.values[~self.graph.allowed].any():
            raise CircuitError("scores must be 0 where the graph has no edge; multiply by graph.allowed.")

    def __repr__(self) -> str:
        record, pairs = self.record, counted(self.record.n_pairs, "pair")
        lines = [f"EdgeScores({record.method} of {record.metric}, {self.graph.n_edges:,} edges, {pairs}), strongest:"]
        return "\n".join(lines + [f"  {item.score:+10.4g}  {item.edge}" for item in self.top(REPR_ROWS)])

    def _repr_html_(self) -> str:
        """A notebook shows the edges of largest magnitude."""
        rows = "".join(f"<tr><td>{html.escape(item.edge)}</td><td>{item.score:+.4g}</td></tr>" for item in self.top(HTML_ROWS))
        head = html.escape(repr(self).partition("\n")[0])
        return f"<p>{head}</p><table><tr><th>edge</th><th>score</th></tr>{rows}</table>"

    def __len__(self) -> int:
        return self.graph.n_edges

    def __getitem__(self, edge: str) -> float:
        """The score of an edge by name."""
        return float(self.values[self.graph.edge(edge)])

    def items(self) -> Iterator[tuple[str, float]]:
        """All edges with their scores, writer by writer."""
        return zip(self.graph.edge_names(), self.values[self.graph.allowed].tolist(), strict=True)

    @property
    def benefit(self) -> Float[Tensor, "writers readers"]:
        """How much better the metric is for each edge's clean value than for its corrupt one: the scores with the sign of good.

        Raises CircuitError where the record does not say which way the metric is good.
        """
        if self.record.higher_is_better is None:
            raise CircuitError(
                f"ranking by signed score needs to know whether a higher {self.record.metric} is better; score with "
                "metric=Metric(name, function, higher_is_better=...)."
            )
        return -self.values if self.record.higher_is_better else self.values

    def top(self, n: int = 10, *, signed: bool = False) -> list[EdgeScore]:
        """The n edges of largest magnitude, or of largest benefit; ties in graph order."""
        order = ranking(self, signed=signed)[:n].tolist()
        n_readers = len(self.graph.readers)
        return [EdgeScore(self.graph.edge_name(i // n_readers, i % n_readers), float(self.values.view(-1)[i])) for i in order]

    def node_scores(self) -> Float[Tensor, " writers"]:
        """Sum of each writer's outgoing edges; for EAP this is its attribution-patching score where `record.additive`."""
        return self.values.sum(1)

    def head_scores(self) -> Float[Tensor, "layer head"]:
        """`node_scores` of the attention heads; NaN where a layer has fewer than the largest."""
        nodes, graph = self.node_scores(), self.graph
        table = nodes.new_full((graph.n_layers, graph.n_heads), math.nan)
        for layer in range(graph.n_layers):
            own = nodes[graph.heads(layer)]
            table[layer, : len(own)] = own
        return table

    def by_node(self) -> dict[str, dict[str, float]]:
        """Scores between nodes, {writer: {reader's node: score}}: the q, k and v edges of one head, or KV group, summed."""
        totals: dict[str, dict[str, float]] = {port.name: {} for port in self.graph.writers}
        for writer, reader in self.graph.allowed.nonzero().tolist():
            row, node = totals[self.graph.writers[writer].name], self.graph.head_of(self.graph.readers[reader])
            row[node] = row.get(node, 0.0) + float(self.values[writer, reader])
        return totals

    def grouped(self, n_kv_heads: int) -> EdgeScores:
        """Scores of an ungrouped graph summed over the query heads of each group: for EAP, those of the grouped graph."""
        graph = self.graph
        if graph.grouped:
            raise CircuitError(f"these scores are grouped already, with {graph.n_kv_heads} KV heads.")
        if not graph.is_uniform:
            raise CircuitError("scores can be grouped where all layers have the same heads, and those of this graph differ.")
        target = Graph(graph.n_layers, graph.n_heads, n_kv_heads, graph.parallel, graph.attn_only)
        values = self.values.new_zeros(len(target.writers), len(target.readers))
        for layer, kind in {(port.layer, port.kind) for port in graph.readers}:
            source, wanted = self.values[:, graph.inputs(layer, kind)], target.inputs(layer, kind)
            values[:, wanted] = source.unflatten(1, (wanted.stop - wanted.start, -1)).sum(2)
        return EdgeScores(target, values, ScoreRecord(**{**self.record.to_dict(), "ungrouped": False}))

    def save(self, path: str | Path) -> Path:
        """Write all edges and the record as circuit.json (`interp.export.write_mib`), in one step."""
        from ..export.mib import write_mib

        return write_mib(path, self)

    @classmethod
    def load(cls, path: str | Path) -> EdgeScores:
        """Read what `save` or `write_mib` wrote. Raises CircuitError for a missing file or one that is no circuit.json."""
        from ..export.mib import read_mib

        return read_mib(path).scores

    def to_pandas(self) -> pandas.DataFrame:
        """One row per edge: edge, writer, reader, kind of reader, score."""
        import pandas

        pairs = self.graph.allowed.nonzero().tolist()
        writers, readers = self.graph.writers, self.graph.readers
        return pandas.DataFrame(
            {
                "edge": self.graph.edge_names(),
                "writer": [writers[writer].name for writer, _ in pairs],
                "reader": [readers[reader].name for _, reader in pairs],
                "kind": [readers[reader].kind for _, reader in pairs],
                "score": self.values[self.graph.allowed].tolist(),
            }
        )


def ranking(scores: EdgeScores, *, signed: bool) -> Tensor:
    """Flat indices into [writers, readers] of all edges, best first: by magnitude, or by benefit. Ties keep graph order."""
    edges = scores.graph.allowed.view(-1).nonzero()[:, 0]
    keys = scores.benefit if signed else scores.values.abs()
    return edges[keys.view(-1)[edges.to(keys.device)].cpu().argsort(descending=True, stable=True)]
