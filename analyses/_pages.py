"""The HTML pages of the analyses, put together from the views of `interp.views`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.export import to_mib
from interp.views import Fragment, Section, circuit_fragment, curve_fragment, head_map_fragment, report_html, table_fragment

if TYPE_CHECKING:
    from analyses.trace_circuit import Traced

COLUMN_OF = {
    "induction": "induction",
    "anti-induction": "induction",
    "prefix-matching": "induction",
    "previous-token": "previous_token",
    "duplicate-token": "duplicate_token",
    "predecessor": "predecessor",
    "first-token": "first_token",
    "current-token": "current_token",
}
"""The score a label speaks of."""

Said = Mapping[str, Sequence[str]]
"""Sentences by the part they belong to."""


def full_report(
    heads: dict[str, Any], temperature: dict[str, Any], traced: Traced | None, said: Said, manifest: Mapping[str, Any]
) -> str:
    """The page of `analyses.report`; without a circuit, its section says why."""
    sections = [
        *heads_sections(heads),
        *temperature_sections(temperature, said["temperature"]),
        *(circuit_sections(traced, heads, said) if traced else [Section("Circuit", said["circuit"])]),
    ]
    summary = "\n\n".join([*said["heads"], *said["composition"][:1], said["circuit"][0]])
    return report_html(f"{manifest['model']}: heads and circuit", sections, manifest, summary=summary)


def heads_page(heads: dict[str, Any], sentences: Sequence[str], manifest: Mapping[str, Any]) -> str:
    """The page of `analyses.induction_heads`."""
    summary = "\n\n".join(sentences)
    return report_html(f"{manifest['model']}: heads", heads_sections(heads), manifest, summary=summary)


def temperature_page(temperature: dict[str, Any], sentences: Sequence[str], manifest: Mapping[str, Any]) -> str:
    """The page of `analyses.head_temperature`."""
    return report_html(f"{manifest['model']}: sharp or diffuse", temperature_sections(temperature, sentences), manifest)


def circuit_page(traced: Traced, heads: dict[str, Any] | None, said: Said, manifest: Mapping[str, Any]) -> str:
    """The page of `analyses.trace_circuit`."""
    return report_html(f"{manifest['model']}: circuit", circuit_sections(traced, heads, said), manifest)


def training_page(training: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """The training curves of `analyses.train_induction`, one line per seed."""
    curves = {f"seed {curve['seed']}": curve["points"] for curve in training["curves"]}
    steps = [point["step"] for point in next(iter(curves.values()))]

    def chart(key: str, title: str, unit: str, y_range: tuple[float, float] | None = None) -> Fragment:
        lines = {name: [point[key] for point in points] for name, points in curves.items()}
        return curve_fragment(steps, lines, x_label="step", y_label=unit, title=title, y_range=y_range)

    text = f"Made by `{training['command']}`; the weights kept are those of seed {training['seed_of_weights']}."
    charts = [
        chart("second_half_loss", "Loss in the repeat", "nats"),
        chart("induction", "Best induction head of the last layer", "attention mass", (0.0, 1.0)),
        chart("previous_token", "Best previous-token head of the first layer", "attention mass", (0.0, 1.0)),
    ]
    return report_html("How an induction circuit forms", [Section("Training", [text, *charts])], manifest)


def heads_sections(heads: dict[str, Any]) -> list[Section]:
    """How heads were measured, their map, and their table."""
    measured = (
        f"Measured on {heads['source']} at distances {', '.join(map(str, heads['distances']))}, {heads['batch']} sequences each, "
        f"{'with' if heads['prepend_bos'] else 'without'} BOS. A perfect head scores 1. Labels state their evidence."
    )
    return [Section("Heads", [measured, head_map_fragment(heads)]), Section("Table of heads", [table_fragment(heads)])]


def temperature_sections(temperature: dict[str, Any], sentences: Sequence[str]) -> list[Section]:
    """The answer, the shares of heads at each length, and a map of the longest; the answer alone where no head has any."""
    lengths, last = temperature["lengths"], temperature["lengths"][-1]
    if all(head["entropy"] is None for head in last["heads"]):
        return [Section("Sharp or diffuse", list(sentences))]
    facts = [{"tokens": at["length"], **{name: f"{share:.0%}" for name, share in at["shares"].items()}} for at in lengths]
    meaning = "; ".join(f"{name}: {words}" for name, words in temperature["classes"].items())
    as_heads = {**temperature, "heads": [{**head, "labels": []} for head in last["heads"]]}
    shown = head_map_fragment(as_heads, score="normalized_entropy", title="Sharpness")
    text = f"Every head on {last['length']} tokens of {last['source']}:"
    return [Section("Sharp or diffuse", [*sentences, f"Share of heads by length. {meaning}.", *facts, text, shown])]


def circuit_sections(traced: Traced, heads: dict[str, Any] | None, said: Said) -> list[Section]:
    """The prompts, the circuit and what it shows, and how faithful it is."""
    prompts = traced.pairs.record()
    lengths = sorted({prompts["min_tokens"], prompts["max_tokens"]})
    asked = (
        f"Prompts: {prompts['source']}; {prompts['n_pairs']} pairs of {' to '.join(map(str, lengths))} tokens, "
        f"{'with' if prompts['prepend_bos'] else 'without'} BOS. A score is the change of {traced.scores.record.metric} when one "
        f"edge carries its corrupt value: {_helpful(traced.scores.record.higher_is_better)}."
    )
    drawing = circuit_fragment(
        to_mib(traced.scores, traced.circuit), node_labels=node_labels(heads), faithfulness=_numbers(traced.faithfulness)
    )
    statement, chosen, completeness, sizes, *notes = said["circuit"]
    return [
        Section("Circuit", [asked, chosen, completeness, *notes, " ".join(said["composition"]), drawing]),
        Section("Faithfulness", [statement, sizes, faithfulness_chart(traced.curves)]),
    ]


def _helpful(higher_is_better: bool | None) -> str:
    if higher_is_better is None:
        return "positive edges raise it"
    return f"{'negative' if higher_is_better else 'positive'} edges help the right answer"


def faithfulness_chart(curves: Mapping[str, Mapping[str, Any]]) -> Fragment:
    """Faithfulness against the number of edges; the empty circuit, 0 by definition, has no place on the logarithmic axis."""
    lines = {curve["ranking"]: {at["n_edges"]: at["faithfulness"] for at in curve["points"]} for curve in curves.values()}
    sizes = sorted({n for line in lines.values() for n in line if n})
    curve = next(iter(curves.values()))
    return curve_fragment(
        sizes,
        {name: [line.get(n) for n in sizes] for name, line in lines.items()},
        x_label="edges in the circuit",
        y_label="faithfulness",
        title=f"Faithfulness to {curve['metric']} under {curve['ablation']} ablation",
        log_x=True,
        levels={"whole model": 1.0, "every edge ablated": 0.0},
    )


def node_labels(heads: dict[str, Any] | None) -> dict[str, str]:
    """{"a18.h6": "L18H6 induction 0.90"} for every head with a label; roles about tokens come before those about positions."""
    found = {}
    for head in heads["heads"] if heads else ():
        for label in head["labels"][:1]:
            value = head.get(COLUMN_OF.get(label, ""))
            number = "" if value is None else f" {value:.2f}"
            found[f"a{head['layer']}.h{head['head']}"] = f"L{head['layer']}H{head['head']} {label.replace('-', ' ')}{number}"
    return found


def _numbers(faithfulness: Mapping[str, Any]) -> dict[str, float]:
    return {key: faithfulness[key] for key in ("faithfulness", "metric_circuit", "metric_full", "metric_empty")}
