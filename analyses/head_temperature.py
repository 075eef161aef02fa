"""How sharp or diffuse is each head?

Heads are measured on text (a passage that comes with the toolkit, or yours) at several lengths; a model without a tokenizer is
measured on repeated random tokens. For each head: entropy over ln(number of keys), with and without the first token, which many
heads use as a place to park; the standard deviation of its scores and its inverse, the temperature; and the freezing ratio
std / sqrt(2 ln n), which says on any length whether attention spreads over many keys (below 1) or sits on few (above 1).

Writes temperature.json, report.html and manifest.json.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from analyses._cli import RunConfig, option, print_table, run_script
from analyses._pages import temperature_page
from analyses._passages import Passage, passages
from analyses._run import Run, tokens_record
from interp.heads import head_scores
from interp.heads.layers import n_heads_of
from interp.run import write_json, write_text

SCHEMA = "temperature/1"
MEASURES = (
    "normalized_entropy",
    "normalized_entropy_no_first",
    "entropy",
    "effective_tokens",
    "logit_std",
    "temperature",
    "freezing_ratio",
    "linearity_error",
    "uniformity_error",
    "first_token",
)
SHOWN = {
    "normalized_entropy": "entropy",
    "normalized_entropy_no_first": "no first",
    "logit_std": "logit std",
    "temperature": "temperature",
    "freezing_ratio": "freezing",
}
"""Columns of the printed table, and their short names; both entropies are over that of uniform attention."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
CLASSES = {
    "sharp": ("normalized entropy below 0.2", lambda head: _below(head["normalized_entropy"], 0.2)),
    "medium": ("normalized entropy 0.2 to 0.8", lambda head: _between(head["normalized_entropy"], 0.2, 0.8)),
    "diffuse": ("normalized entropy above 0.8", lambda head: _above(head["normalized_entropy"], 0.8)),
    "frozen": ("freezing ratio above 1", lambda head: _above(head["freezing_ratio"], 1.0)),
    "hot": ("logit std below 1 (temperature above 1)", lambda head: _below(head["logit_std"], 1.0)),
    "near-linear": ("within 0.15 of attention linear in the scores", lambda head: _below(head["linearity_error"], 0.15)),
    "sink": ("more than 0.3 of attention on the first token", lambda head: _above(head["first_token"], 0.3)),
}
"""Sharp, medium and diffuse exclude each other; the rest overlap."""


@dataclass(frozen=True, kw_only=True)
class TemperatureConfig(RunConfig):
    """What text, how long."""

    text: Path | None = option(None, "UTF-8 text file; default: a passage of 1,100 words that comes with the toolkit")
    lengths: tuple[int, ...] = option(
        (64, 256, 1024), "tokens per sequence, first token included; those that do not fit are left out"
    )
    tokens: int = option(1024, "tokens per length, at most: as many sequences as fit")


def measure(run: Run, config: TemperatureConfig) -> dict[str, Any]:
    """The content of temperature.json for the run's model."""
    sets = passages(run.model, config.text, config.lengths, config.tokens, config.bos, config.seed)
    cfg = run.model.cfg
    return {
        "schema": SCHEMA,
        "model": cfg.name,
        "n_layers": cfg.n_layers,
        "n_heads": max(n_heads_of(run.model, layer) for layer in range(cfg.n_layers)),
        "classes": {name: words for name, (words, _) in CLASSES.items()},
        "lengths": [_measure_passage(run, passage, config.progress) for passage in sets],
    }


def _measure_passage(run: Run, passage: Passage, progress: bool | None) -> dict[str, Any]:
    """One entry of `lengths`: every head's measures, their quantiles, and the share of heads in each class."""
    record = tokens_record(passage.tokens, passage.source, passage.prepend_bos)
    run.prompts[f"temperature, {passage.length} tokens"] = record
    name = f"temperature-{passage.length}"
    found = run.unit(name, lambda: _measure_heads(run.model, passage.tokens, progress), **record)
    heads = found["heads"]
    about = {"length": passage.length, "n_sequences": len(passage.tokens), "source": passage.source}
    return {**about, **_unmeasured(**found), "prepend_bos": passage.prepend_bos, **summary(heads), "heads": heads}


def _unmeasured(heads: list[dict[str, Any]], left_out: list[dict[str, Any]]) -> dict[str, Any]:
    """How many heads have weights that are no distribution over keys, and the layers' reasons; empty where there are none."""
    n = sum(head["entropy"] is None for head in heads)
    return {"n_unmeasured": n, "left_out": left_out} if n else {}


def any_measured(at: dict[str, Any]) -> bool:
    """Whether, in one entry of `lengths`, some head's weights are a distribution over keys."""
    return any(head["entropy"] is not None for head in at["heads"])


def _measure_heads(model: Any, tokens: Tensor, progress: bool | None) -> dict[str, list[dict[str, Any]]]:
    batch = max(1, 512 // tokens.shape[1])
    scores = head_scores(model, tokens, batch=batch, progress=progress).to_heads_json()
    return {
        "heads": [{key: head[key] for key in ("layer", "head", *MEASURES)} for head in scores["heads"]],
        "left_out": [each for each in scores.get("left_out", []) if each["what"] != "ov_copying"],
    }


def summary(heads: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Quantiles of every measure over heads, and the share of measured heads in every class; undefined values do not count."""
    quantiles = {}
    for name in MEASURES:
        values = sorted(head[name] for head in heads if head[name] is not None)
        quantiles[name] = {f"{q:.0%}": _quantile(values, q) for q in QUANTILES} if values else None
    measured = [head for head in heads if head["entropy"] is not None]
    shares = {name: sum(map(belongs, measured)) / (len(measured) or 1) for name, (_, belongs) in CLASSES.items()}
    return {"quantiles": quantiles, "shares": shares}


def _quantile(ordered: Sequence[float], q: float) -> float:
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def answer(temperature: dict[str, Any]) -> str:
    """The answer in a few sentences, from the longest length measured; or one sentence, why no layer has any."""
    at = temperature["lengths"][-1]
    if not any_measured(at):
        return _no_distribution(at["left_out"])
    shares = {name: f"{share:.0%}" for name, share in at["shares"].items()}
    median = {name: "-" if found is None else f"{found['50%']:.2f}" for name, found in at["quantiles"].items()}
    return (
        f"On {at['length']} tokens of {at['source']}, the median of {len(at['heads'])} heads has {median['normalized_entropy']} "
        f"of the entropy of uniform attention ({median['normalized_entropy_no_first']} without the first token) and scores with "
        f"a standard deviation of {median['logit_std']}, that is a temperature of {median['temperature']}. "
        f"{shares['sharp']} of heads are sharp, {shares['medium']} in between, {shares['diffuse']} diffuse. "
        f"{shares['near-linear']} attend nearly linearly in their scores; {shares['sink']} put more than 0.3 of their attention "
        "on the first token."
        + (f" {n} heads are not counted: they form no distribution over keys." if (n := at.get("n_unmeasured")) else "")
    )


def _no_distribution(left_out: Sequence[dict[str, Any]]) -> str:
    layers: dict[str, list[str]] = {}
    for each in left_out:
        layers.setdefault(each["why"], []).append(str(each["layer"]))
    reasons = "; ".join(f"layers {', '.join(found)} are left out, as {why}" for why, found in layers.items())
    return f"No layer has a distribution that could be sharp or diffuse: {reasons}."


def run(config: TemperatureConfig) -> dict[str, Any]:
    """Measure, print, write; returns the content of temperature.json."""
    job = Run(config, "head_temperature")
    temperature = measure(job, config)
    write_json(job.folder / "temperature.json", temperature)
    write_text(job.folder / "report.html", temperature_page(temperature, [answer(temperature)], job.manifest()))
    job.write_manifest()
    print_temperature(temperature)
    return temperature


def print_temperature(temperature: dict[str, Any]) -> None:
    """The table and the answer, on standard output."""
    print_table(f"{temperature['model']}: medians over heads, and share of heads per class", *summary_table(temperature))
    print(answer(temperature))


def summary_table(temperature: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows: one row per length, medians over heads and shares of heads."""
    rows = [
        [
            str(at["length"]),
            *((at["quantiles"][name] or {}).get("50%") for name in SHOWN),
            *(f"{at['shares'][name]:.0%}" if any_measured(at) else None for name in CLASSES),
        ]
        for at in temperature["lengths"]
    ]
    return ["tokens", *SHOWN.values(), *CLASSES], rows


def _below(value: float | None, limit: float) -> bool:
    return value is not None and value < limit


def _above(value: float | None, limit: float) -> bool:
    return value is not None and value > limit


def _between(value: float | None, low: float, high: float) -> bool:
    return value is not None and low <= value <= high


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return run_script(TemperatureConfig, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
