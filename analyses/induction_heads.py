"""Which heads are induction heads, and what do the others attend?

Every head is scored on random tokens that occur twice, at several distances: attention to the token that followed an earlier
occurrence of the present one (induction), to the previous token, to earlier occurrences of the same token (duplicate), and to the
first token. A perfect head scores exactly 1. Labels state their evidence.

Writes heads.json, report.html and manifest.json.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analyses._cli import RunConfig, option, print_table, run_script
from analyses._pages import heads_page
from analyses._run import Run, tokens_record
from interp.heads import head_scores
from interp.heads.layers import LeftOut, left_out_sentences
from interp.heads.sequences import repeated_sequences
from interp.run import write_json, write_text

SHOWN = {
    "induction": "induction",
    "induction_min": "worst",
    "previous_token": "previous",
    "duplicate_token": "duplicate",
    "first_token": "first",
    "normalized_entropy": "entropy",
}
"""Columns of the printed table, and their short names; entropy is over that of uniform attention."""


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(RunConfig):
    """How heads are measured."""

    distances: tuple[int, ...] = option((20, 35, 50), "tokens between a token and its repetition; three or more tell a head "
                                        "that matches tokens from one that attends a fixed offset")  # fmt: skip
    batch: int = option(4, "random sequences per distance")
    top: int = option(10, "heads to print")


def measure(run: Run, config: HeadsConfig) -> dict[str, Any]:
    """The content of heads.json for the run's model."""
    sequences = repeated_sequences(run.model, config.distances, config.batch, config.seed, config.bos)
    for batch in sequences.batches:
        record = tokens_record(batch.tokens, "repeated random tokens", sequences.prepend_bos)
        run.prompts[f"heads, distance {batch.distance}"] = record

    def compute() -> dict[str, Any]:
        return head_scores(
            run.model,
            distances=config.distances,
            batch=config.batch,
            seed=config.seed,
            prepend_bos=config.bos,
            progress=config.progress,
        ).to_heads_json()

    return run.unit("heads", compute, distances=config.distances, batch=config.batch, seed=config.seed, bos=config.bos)


def run(config: HeadsConfig) -> dict[str, Any]:
    """Measure, print, write; returns the content of heads.json."""
    job = Run(config, "induction_heads")
    heads = measure(job, config)
    job.prepend_bos = heads["prepend_bos"]
    write_json(job.folder / "heads.json", heads)
    write_text(job.folder / "report.html", heads_page(heads, sentences(heads), job.manifest()))
    job.write_manifest()
    print_heads(heads, config.top)
    return heads


def top_heads(heads: dict[str, Any], column: str, k: int) -> list[dict[str, Any]]:
    """The k heads with the largest values of a column; undefined values come last."""
    known = [head for head in heads["heads"] if head[column] is not None]
    return sorted(known, key=lambda head: -head[column])[:k]


def sentences(heads: dict[str, Any]) -> list[str]:
    """The strongest heads of each type, how many are labelled induction, and what the repeat does to the loss."""
    best = "; ".join(_best(heads, column) for column in ("induction", "previous_token", "duplicate_token"))
    n_induction = sum("induction" in head["labels"] for head in heads["heads"])
    found = [f"Strongest heads (layer.head): {best}. {n_induction} of {len(heads['heads'])} heads are labelled induction."]
    if heads["loss_second_half"] is not None:
        found.append(
            f"On random tokens the loss falls from {heads['loss_first_half']:.2f} nats in the first occurrence to "
            f"{heads['loss_second_half']:.2f} in the repeat."
        )
    return found + left_out_sentences(LeftOut(**each) for each in heads.get("left_out", []))


def _best(heads: dict[str, Any], column: str, k: int = 3) -> str:
    top = top_heads(heads, column, k)
    shown = ", ".join(f"{head['layer']}.{head['head']} ({head[column]:.2f})" for head in top)
    return f"{column.replace('_', ' ')} {shown or 'none'}"


def print_heads(heads: dict[str, Any], k: int) -> None:
    """The k heads with the highest induction scores, on standard output."""
    rows = [
        [f"{head['layer']}.{head['head']}", *(head[column] for column in SHOWN), head["labels"]]
        for head in top_heads(heads, "induction", k)
    ]
    print_table(f"{heads['model']}: heads by induction score", ["head", *SHOWN.values(), "labels"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return run_script(HeadsConfig, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
