"""What do this model's heads do, and which path carries its behaviour? One page with the answers.

Runs induction_heads, head_temperature and trace_circuit on a model and a built-in prompt set (indirect-object identification, or
repeated random tokens for a model without a tokenizer), and puts the head map, the table of heads, the circuit with its
faithfulness, and the record of the run into one report.html that opens offline.

A model without a circuit to trace, such as one without a head, is shown with the rest, and the page, the manifest and the output
say why.

Writes heads.json, temperature.json, circuit.json, circuit.graphml, circuit.dot, faithfulness.json, report.html and manifest.json.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from analyses import head_temperature, induction_heads, trace_circuit
from analyses._cli import RunConfig, option, run_script
from analyses._composition import composition_sentences
from analyses._pages import full_report
from analyses._run import Run
from analyses.head_temperature import TemperatureConfig
from analyses.induction_heads import HeadsConfig
from analyses.trace_circuit import RANKS, CircuitConfig, Traced
from interp.circuits.trace import METHODS
from interp.run import write_json, write_text

Config = TypeVar("Config", bound=RunConfig)


@dataclass(frozen=True, kw_only=True)
class ReportConfig(RunConfig):
    """The choices that matter most; the three analyses have more."""

    pairs: Path | None = option(None, "JSON file with clean/corrupt pairs; default: built-in prompts")
    lengths: tuple[int, ...] = option(
        (64, 256, 512), "tokens of text to measure sharpness on; those that do not fit are left out"
    )
    n_pairs: int = option(10, "how many of the built-in prompts")
    method: str = option("eap-ig", "how edges are scored", choices=METHODS)
    steps: int = option(5, "integration steps of eap-ig")
    top: int | None = option(None, "edges to keep; default: 200, or a quarter of all where that is less")
    rank: str = option("benefit", "keep the edges that change the metric most, or those that help the answer most", choices=RANKS)
    greedy: bool = option(True, "grow the circuit edge by edge from the logits, instead of taking the strongest anywhere")


@dataclass(frozen=True)
class Report:
    """The three results and where the page is."""

    heads: dict[str, Any]
    temperature: dict[str, Any]
    traced: Traced | None
    """None for a model that has no circuit to trace; `sentences["circuit"]` says why."""
    sentences: dict[str, list[str]]
    """What each part found, in words, by part: heads, temperature, composition, circuit."""
    page: Path


def run(config: ReportConfig) -> Report:
    """Run the three analyses into one folder; what an earlier run finished is not computed again."""
    job = Run(config)
    refused = trace_circuit.refusal(job.model)
    if not refused:  # mistakes in the prompts show before the long parts
        trace_circuit.prompt_pairs(job.model, options(CircuitConfig, config))
    heads = induction_heads.measure(job, options(HeadsConfig, config))
    temperature = head_temperature.measure(job, options(TemperatureConfig, config))
    traced = None if refused else trace_circuit.trace(job, options(CircuitConfig, config))
    said = {
        "heads": induction_heads.sentences(heads),
        "temperature": [head_temperature.answer(temperature)],
        "composition": composition_sentences(heads, traced.scores) if traced else [],
        "circuit": trace_circuit.sentences(traced) if traced else [f"No circuit: {refused}"],
    }
    if refused:
        job.left_out["circuit"], job.prepend_bos = refused, heads["prepend_bos"]
    write_json(job.folder / "heads.json", heads)
    write_json(job.folder / "temperature.json", temperature)
    if traced:
        trace_circuit.write(job.folder, traced)
    job.write_manifest()
    page = write_text(job.folder / "report.html", full_report(heads, temperature, traced, said, job.manifest()))
    print_report(heads, traced, said, page)
    return Report(heads, temperature, traced, said, page)


def options(kind: type[Config], config: ReportConfig) -> Config:
    """The options that another analysis shares with the report; the rest keep their defaults."""
    shared = {field.name for field in fields(kind)} & set(asdict(config))
    return kind(**{name: getattr(config, name) for name in shared})


def print_report(heads: dict[str, Any], traced: Traced | None, said: dict[str, list[str]], page: Path) -> None:
    """The tables, the findings in words, and where the page is, on standard output."""
    induction_heads.print_heads(heads, 10)
    if traced:
        trace_circuit.print_circuit(traced, 10)
    else:
        print(said["circuit"][0])
    print("\n".join(said["composition"] + said["temperature"]))
    print(f"report: {page}")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return run_script(ReportConfig, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
