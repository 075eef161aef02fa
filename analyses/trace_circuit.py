"""Which path through the model carries a behaviour?

Every edge from what a head or MLP writes to what a later one reads is scored by how much the metric changes when that edge
carries its value from the corrupt prompt. The strongest edges that lie on a path from input to logits are the circuit, and the
circuit is run on its own to see how much of the behaviour it keeps.

Prompts: --pairs FILE.json with {"prompts": [{"clean", "corrupt", "answers": [...], "wrong_answers": [...]}]}, as text or as
token ids; without it, indirect-object identification, or repeated random tokens for a model without a tokenizer.

Writes circuit.json, circuit.graphml, circuit.dot, faithfulness.json, report.html and manifest.json.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from analyses._cli import RunConfig, option, print_table, run_script
from analyses._composition import composition_sentences
from analyses._pages import circuit_page
from analyses._run import Run
from analyses.induction_heads import HeadsConfig, measure
from interp.circuits import (
    METRICS,
    Circuit,
    CircuitError,
    EdgeScores,
    Graph,
    ScoreRecord,
    evaluate,
    faithfulness_curve,
    prune,
    select,
    trace_circuit,
)
from interp.circuits.access import ModelView
from interp.circuits.curve import FRACTIONS
from interp.circuits.search import ABLATIONS
from interp.circuits.trace import METHODS
from interp.prompts import PromptPairs, ioi_pairs, repeated_token_pairs
from interp.run import plain, write_json, write_text

RANKS = ("magnitude", "benefit")
METHOD_NOTE = {
    "eap": "a linear estimate at the clean prompts, so the two may differ widely",
    "eap-ig": "with exact integration the two would be equal",
    "exact": "single edges patched one at a time, which need not add up",
}
DISTANCE = 16
"""Repeat distance of the built-in random prompts, where the context has room for it."""


@dataclass(frozen=True, kw_only=True)
class CircuitConfig(RunConfig):
    """What to trace and how."""

    pairs: Path | None = option(None, "JSON file with clean/corrupt pairs; default: built-in prompts")
    n_pairs: int = option(10, "how many of the built-in prompts")
    method: str = option("eap", "edge attribution patching, its integrated-gradients form, or exact patching", choices=METHODS)
    metric: str = option("logit_diff", "what the edges are scored on", choices=tuple(METRICS))
    steps: int = option(5, "integration steps of eap-ig")
    top: int | None = option(None, "edges to keep; default: 200, or a quarter of all where that is less")
    ablation: str = option("patching", "what edges outside the circuit carry when it is evaluated", choices=ABLATIONS)
    rank: str = option(
        "magnitude", "keep the edges that change the metric most, or those that help the answer most", choices=RANKS
    )
    greedy: bool = option(False, "grow the circuit edge by edge from the logits, instead of taking the strongest anywhere")
    ungrouped: bool = option(False, "give every query head a key and value of its own, as many other tools do")
    roles: bool = option(True, "label heads by what they attend on random tokens")
    batch: int | None = option(None, "prompt pairs per pass; default: all at once")


@dataclass(frozen=True)
class Traced:
    """A circuit, the scores it was chosen by, and how faithful it is."""

    pairs: PromptPairs
    scores: EdgeScores
    circuit: Circuit
    n_asked: int
    """Edges chosen by score; those on no path from input to logits were then dropped."""
    faithfulness: dict[str, Any]
    """Fields of `interp.circuits.Faithfulness` and its `statement`."""
    curves: dict[str, dict[str, Any]]
    """By rank, "magnitude" or "benefit": fields of `interp.circuits.FaithfulnessCurve`, its areas cpr and cmd."""
    rank: str
    """How the circuit's own edges were ranked."""


def refusal(model: Any) -> str:
    """Why this model has no circuit to trace; empty where it has."""
    try:
        ModelView.of(model)
    except CircuitError as error:
        return str(error)
    return ""


def prompt_pairs(model: Any, config: CircuitConfig) -> PromptPairs:
    """The user's pairs, or the built-in ones that suit the model."""
    if config.pairs is not None:
        return PromptPairs.from_json(config.pairs, model, config.bos)
    if model.tokenizer is not None:
        return ioi_pairs(model, config.n_pairs, config.seed, config.bos)
    # The prompt holds a segment and half of its repeat.
    distance = min(DISTANCE, 2 * (model.cfg.n_ctx - 2) // 3, model.cfg.d_vocab - 4)
    return repeated_token_pairs(model, config.n_pairs, distance, config.seed, prepend_bos=config.bos)


def trace(run: Run, config: CircuitConfig) -> Traced:
    """Score, choose, evaluate; finished parts are taken from the run's folder.

    Raises CircuitError for a model that has no circuit to trace, before any prompts are made.
    """
    if why := refusal(run.model):
        raise CircuitError(why)
    pairs = prompt_pairs(run.model, config)
    run.prompts["circuit"], run.prepend_bos = pairs.record(), pairs.prepend_bos
    scores = _scores(run, config, pairs)
    n_asked = n_edges_asked(config.top, scores.graph.n_edges)
    signed = config.rank == "benefit"
    circuit = select(scores, signed=signed, **{"greedy" if config.greedy else "top": n_asked})
    if config.ablation == "patching":  # under the others, a writer off every path still computes something
        circuit = prune(circuit)
    inputs = {"prompts": pairs.record(), "scores": scores.values, "metric": config.metric, "ablation": config.ablation}
    inputs |= {"n_edges": n_asked, "greedy": config.greedy}

    def curve(rank: str) -> dict[str, Any]:
        return run.unit(f"curve-{rank}", lambda: _curve(run.model, scores, pairs, n_asked, config, rank), **inputs)

    return Traced(
        pairs=pairs,
        scores=scores,
        circuit=circuit,
        n_asked=n_asked,
        faithfulness=run.unit(
            "faithfulness", lambda: _faithfulness(run.model, circuit, pairs, config), rank=config.rank, **inputs
        ),
        curves={rank: curve(rank) for rank in RANKS},
        rank=config.rank,
    )


def _faithfulness(model: Any, circuit: Circuit, pairs: PromptPairs, config: CircuitConfig) -> dict[str, Any]:
    found = evaluate(model, circuit, pairs, metric=config.metric, ablation=config.ablation, batch_size=config.batch)
    return {**plain(found), "statement": found.statement}


def _curve(model: Any, scores: EdgeScores, pairs: PromptPairs, n_asked: int, config: CircuitConfig, rank: str) -> dict[str, Any]:
    found = faithfulness_curve(
        model,
        scores,
        pairs,
        [*FRACTIONS, n_asked],
        signed=rank == "benefit",
        greedy=config.greedy,
        metric=config.metric,
        ablation=config.ablation,
        batch_size=config.batch,
        progress=config.progress,
    )
    return {**plain(found), "cpr": found.cpr, "cmd": found.cmd}


def _scores(run: Run, config: CircuitConfig, pairs: PromptPairs) -> EdgeScores:
    graph = Graph.of(run.model.ungrouped() if config.ungrouped else run.model)

    def compute() -> dict[str, Any]:
        found = trace_circuit(
            run.model,
            pairs,
            metric=config.metric,
            method=config.method,
            steps=config.steps,
            ungrouped=config.ungrouped,
            batch_size=config.batch,
            progress=config.progress,
        )
        return {"record": found.record.to_dict(), "scores": found.values[graph.allowed]}

    inputs = {"method": config.method, "metric": config.metric, "steps": config.steps, "ungrouped": config.ungrouped}
    stored = run.unit("edges", compute, prompts=pairs.record(), **inputs)
    values = torch.zeros(graph.allowed.shape)
    values[graph.allowed] = torch.tensor(stored["scores"])
    return EdgeScores(graph, values, ScoreRecord(**stored["record"]))


def n_edges_asked(top: int | None, n_edges: int) -> int:
    """How many edges to choose of `n_edges`. Raises CircuitError for fewer than one."""
    if top is None:
        return min(200, max(1, n_edges // 4))
    if top < 1:
        raise CircuitError(f"--top must be at least 1 edge, got {top}.")
    return min(top, n_edges)


def write(folder: Path, traced: Traced) -> None:
    """Write the circuit in every format, and its faithfulness."""
    from interp.export import write_dot, write_graphml, write_mib

    write_mib(folder / "circuit.json", traced.scores, traced.circuit)
    write_graphml(folder / "circuit.graphml", traced.scores, traced.circuit)
    write_dot(folder / "circuit.dot", traced.scores, traced.circuit)
    write_json(folder / "faithfulness.json", {"faithfulness": traced.faithfulness, "curves": traced.curves})


def run(config: CircuitConfig) -> Traced:
    """Trace, print, write."""
    job = Run(config, "trace_circuit")
    traced = trace(job, config)
    heads = _roles(job, config) if config.roles else None
    composition = composition_sentences(heads, traced.scores) if heads else []
    said = {"circuit": sentences(traced), "composition": composition}
    write(job.folder, traced)
    write_text(job.folder / "report.html", circuit_page(traced, heads, said, job.manifest()))
    job.write_manifest()
    print_circuit(traced)
    return traced


def _roles(run: Run, config: CircuitConfig) -> dict[str, Any]:
    """What the heads attend on random tokens, to label the circuit's nodes."""
    return measure(run, HeadsConfig(model=config.model, seed=config.seed, bos=config.bos, progress=config.progress))


def print_circuit(traced: Traced, k: int = 10) -> None:
    """The strongest edges and the faithfulness of the circuit."""
    record = traced.scores.record
    rows = [(edge.edge, edge.score, "yes" if edge.edge in traced.circuit else "no") for edge in traced.scores.top(k)]
    effect = f"effect on {record.metric} by {record.method} (corrupt - clean)"
    title = f"{record.model}: strongest of {len(traced.scores):,} edges, {effect}"
    print_table(title, ["edge", "score", "in circuit"], rows)
    print("\n".join(sentences(traced)))


def sentences(traced: Traced) -> list[str]:
    """What the circuit is faithful to, how it was chosen, how exact the scores are, and how many edges it takes for more."""
    needed = " ".join(_sizes(rank, curve) for rank, curve in traced.curves.items())
    said = [traced.faithfulness["statement"], _chosen(traced), _completeness(traced.scores), needed]
    return said + ([note] if (note := traced.scores.record.note) else [])


def _chosen(traced: Traced) -> str:
    n, total = traced.circuit.n_edges, len(traced.scores)
    best = {"magnitude": "strongest", "benefit": "most helpful"}[traced.rank]
    if traced.curves[traced.rank]["ranking"].startswith("greedy"):
        return (
            f"The circuit is {n:,} of {total:,} edges, the {best} first, grown from the logits, so that each leads there from "
            "the input."
        )
    if traced.faithfulness["ablation"] != "patching":
        return f"The circuit is the {n:,} {best} of {total:,} edges."
    kept = f"Of the {traced.n_asked:,} {best} of {total:,} edges, {n:,} lie on a path from input to logits: the circuit."
    return kept if n == traced.n_asked else f"{kept} With --greedy every edge chosen does."


def _completeness(scores: EdgeScores) -> str:
    """The edges out of the input carry all that differs between the prompts; how much of the metric's change they add up to."""
    record = scores.record
    if record.metric_clean is None or record.metric_corrupt is None:
        return ""
    summed, change = float(scores.node_scores()[0]), record.metric_corrupt - record.metric_clean
    note = METHOD_NOTE[record.method] if record.additive else "norms of the stream, held fixed in the scores, take up the rest"
    return (
        f"The edges out of the input sum to {summed:.4g}, where {record.metric} changes by {change:.4g} from clean to corrupt: "
        f"{note}."
    )


def _sizes(rank: str, curve: dict[str, Any]) -> str:
    points, total = curve["points"], curve["points"][-1]["n_edges"]
    needed = []
    for level in (0.5, 0.8, 0.95):
        n = next(point["n_edges"] for point in points if point["faithfulness"] >= level or point["n_edges"] == total)
        needed.append(f"{level} with {n:,} edges ({n / total:.1%})")
    beyond = [point["faithfulness"] for point in points if point["n_edges"] > n] or [1.0]
    spread = f", then moves between {min(beyond):.2f} and {max(beyond):.2f}" if min(beyond) < 0.9 or max(beyond) > 1.1 else ""
    return f"Taking edges by {rank}, faithfulness first reaches {', '.join(needed)}{spread}."


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return run_script(CircuitConfig, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
