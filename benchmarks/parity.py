"""Measures every family against Hugging Face's code and writes the tables of docs/families.md.

    python -m benchmarks.parity            measure and print
    python -m benchmarks.parity --write    measure and rewrite the tables in docs/families.md

Each row is the worst of several tiny random models, in float32, without padding and with it on either side; errors are the
largest difference over the largest logit (or state). It needs the development tools, and takes about three minutes.
"""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from models import HookedTransformer, TransformerConfig
from models.loading.families import FAMILIES
from tests.oracles.parity import SIDES, every_pair
from tests.oracles.second_forms import SECOND_FORMS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "families.md"
PLAIN = TransformerConfig(
    n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=9, n_ctx=9, d_mlp=9, gated_mlp=True, positions="rotary"
)


WORDS = {
    "kv_store": "keys and values shared between layers",
    "kv_reader": "keys and values shared between layers",
    "latent": "latent attention",
    "indexed_latent": "latent attention to keys chosen by an indexer",
    "differential": "differential attention",
    "disentangled": "disentangled attention",
    "talking_disentangled": "disentangled attention with talking heads",
    "mamba2": "Mamba-2",
    "retention": "lightning attention",
    "gated_delta": "gated delta rule",
    "kimi_delta": "Kimi delta rule",
}
"""Mixers whose name says little."""

WITH_OWN_POSITIONS = ("mamba2", "retention", "gated_delta", "kimi_delta", "disentangled", "talking_disentangled")
"""Mixers that know the order of tokens, or their distances, without a position embedding."""


class Row:
    """What was seen of one family."""

    def __init__(self) -> None:
        self.cases, self.error = 0, 0.0
        self.features: dict[str, None] = {}
        self.hooks: dict[str, None] = {}

    def add(self, model: Any, error: float) -> None:
        self.cases, self.error = self.cases + 1, max(self.error, error)
        self.features |= dict.fromkeys(features_of(model.cfg))
        plain = {*hook_kinds(HookedTransformer(PLAIN)), "hook_pos_embed"}
        self.hooks |= dict.fromkeys(kind for kind in hook_kinds(model) if kind not in plain)


def hook_kinds(model: Any) -> list[str]:
    """Hook names without stack, block and layer, in the order of the forward pass."""
    names = (re.sub(r"^(encoder\.|decoder\.)?blocks\.\d+\.", "", name) for name in model.hook_names)
    names = (re.sub(r"^(encoder|decoder)\.", "", name) for name in names)
    return list(
        dict.fromkeys(name.replace("cross_attn.", "attn.") for name in names if not name.startswith(("ln", "cross_attn.ln")))
    )


def features_of(cfg: TransformerConfig) -> Iterator[str]:
    """The variants that a config uses, in the words of its fields."""
    if cfg.encoder is not None:
        yield from features_of(cfg.encoder)
        yield "cross-attention"
    yield f"{cfg.block} blocks"
    for layer in (cfg.for_layer(i) for i in range(cfg.n_layers)):
        yield from layer_features(layer)


def layer_features(cfg: TransformerConfig) -> Iterator[str]:
    """Those of one layer."""
    if cfg.mixer != "attention":
        yield WORDS.get(cfg.mixer, cfg.mixer)
    if cfg.mask != "full":
        yield f"{cfg.mask} mask"
    if cfg.positions != "none" or not (cfg.score_terms or cfg.mixer in WITH_OWN_POSITIONS):
        yield f"{cfg.positions} positions" if cfg.positions != "none" else "no positions"
    if cfg.rotary is not None and cfg.positions == "rotary":
        yield from (["partial rotary"] if cfg.rotary.dim not in (None, cfg.d_head) else [])
        yield from (["interleaved rotary"] if cfg.rotary.layout == "interleaved" else [])
        yield from ([f"{cfg.rotary.scaling} scaling"] if cfg.rotary.scaling != "none" else [])
    if cfg.n_kv_heads < cfg.n_heads:
        yield "multi-query" if cfg.n_kv_heads == 1 else "grouped queries"
    if cfg.qk_norm != "none":
        yield f"QK-norm {cfg.qk_norm}" + (" after rotation" if cfg.qk_norm_place == "after" else "")
    if cfg.temperature is not None:
        yield "temperature by position"
    if cfg.attn_softcap is not None:
        yield "soft-cap"
    yield from cfg.score_terms
    yield from ([cfg.normaliser] if cfg.normaliser != "softmax" else [])
    yield from cfg.out_steps
    if cfg.mlp == "experts" and not cfg.attn_only:
        yield "mixture of experts"


def measure() -> dict[str, Row]:
    """All cases, by family."""
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        for pair, error in every_pair(Path(folder)):
            worst = max(error(pair, side) for side in SIDES)
            rows.setdefault(pair.ours.cfg.family, Row()).add(pair.ours, worst)
            logging.info("%-45s %.1e", pair.name, worst)
    return rows


def family_table(rows: dict[str, Row]) -> str:
    """The families as a Markdown table."""
    lines = [
        "| family (`model_type`) | variants in it | cases | largest error | hooks special to it | refused |",
        "|---|---|---|---|---|---|",
    ]
    for family in {family.name: family for family in FAMILIES.values()}.values():
        row = rows.get(family.name, Row())
        types = ", ".join(f"`{kind}`" for kind in family.model_types)
        hooks = ", ".join(f"`{name}`" for name in row.hooks) or "-"
        refused = ", ".join(f"`{option}`" for option in family.refused) or "-"
        features = ", ".join(row.features).replace("_", " ")
        lines.append(f"| {types} | {features} | {row.cases} | {row.error:.1e} | {hooks} | {refused} |")
    return "\n".join(lines)


def second_form_table() -> str:
    """Variants that Hugging Face has no class for, as a Markdown table."""
    lines = ["| variant | compared with | largest error, float64 |", "|---|---|---|"]
    lines += [f"| {form.variant} | {form.other} | {form.error():.1e} |" for form in SECOND_FORMS]
    return "\n".join(lines)


def write(tables: dict[str, str]) -> None:
    """Put each table between its pair of markers in the page."""
    text = PAGE.read_text(encoding="utf8")
    for name, table in tables.items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda found, table=table: f"{found[1]}{table}\n{found[2]}",
            text,
            flags=re.S,
        )
    PAGE.write_text(text, encoding="utf8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure every family against Hugging Face's code.")
    parser.add_argument("--write", action="store_true", help="rewrite the tables of docs/families.md")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    tables = {"families": family_table(measure()), "second forms": second_form_table()}
    if options.write:
        write(tables)
    for table in tables.values():
        print(table)


if __name__ == "__main__":
    main()
