"""Made-up results in the fixed JSON schemas, shaped like those of real models, for tests of the views."""

from __future__ import annotations

import json
import random
import re
from typing import Any

KNOWN_LABELS = {
    "a18.h6": "induction 0.90",
    "a17.h3": "induction 0.77",
    "a17.h4": "induction 0.71",
    "a16.h0": "previous token 0.90",
    "a11.h1": "previous token 0.84",
    "a8.h0": "duplicate token 0.64",
    "a14.h3": "duplicate token 0.59",
    "a18.h8": "first token 1.00",
}


def circuit(
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    n_edges: int,
    *,
    mlps: bool = True,
    seed: int = 0,
    extra: int = 0,
    parallel: bool = False,
    ungrouped: bool = False,
) -> dict[str, Any]:
    """A circuit.json with `n_edges` edges in the circuit and `extra` scored ones outside it; heavy-tailed signed scores."""
    rng = random.Random(seed)
    heads = [f"a{layer}.h{head}" for layer in range(n_layers) for head in range(n_heads)]
    mlp_names = [f"m{layer}" for layer in range(n_layers)] if mlps else []
    writers = ["input", *heads, *mlp_names]
    weights = [rng.paretovariate(1.1) for _ in writers]
    edges: dict[str, dict[str, Any]] = {}
    while len(edges) < n_edges + extra:
        writer = rng.choices(writers, weights)[0]
        letter = "h" if ungrouped else "g"
        reader = _reader(rng, writer, n_layers, n_heads, n_heads if ungrouped else n_kv_heads, letter, mlps, parallel)
        score = rng.choice((-1, -1, 1)) * min(0.9, rng.paretovariate(0.9) * 1e-3)
        edges.setdefault(f"{writer}->{reader}", {"score": score, "in_graph": False})
    strongest = sorted(edges, key=lambda name: -abs(edges[name]["score"]))[:n_edges]
    for name in strongest:
        edges[name]["in_graph"] = True
    ends = {end.split("<")[0] for name in strongest for end in name.split("->")}
    cfg = {"n_layers": n_layers, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "parallel_attn_mlp": parallel, "d_model": 576}
    return {
        "cfg": cfg,
        "nodes": {name: {"in_graph": name in ends} for name in ("input", "logits", *heads, *mlp_names)},
        "edges": edges,
        "method": "eap-ig",
        "metric": "logit_difference",
        "difference": "corrupt-clean",
        "ungrouped": ungrouped,
        "n_pairs": 10,
    }


def _reader(
    rng: random.Random, writer: str, n_layers: int, n_heads: int, n_groups: int, letter: str, mlps: bool, parallel: bool
) -> str:
    """A reader that the block order lets `writer` reach; near layers and the logits more often."""
    layer = -1 if writer == "input" else int(writer.split(".")[0][1:])
    if layer == n_layers - 1 or rng.random() < 0.08:
        return "logits"
    if mlps and not parallel and writer[0] == "a" and rng.random() < 0.12:
        return f"m{layer}"
    target = min(n_layers - 1, layer + 1 + int(rng.expovariate(0.22)))
    kind = rng.choice(("q", "k", "v", "v", "m") if mlps else ("q", "k", "v"))
    if kind == "m":
        return f"m{target}"
    if kind == "q":
        return f"a{target}.h{rng.randrange(n_heads)}<q>"
    return f"a{target}.{letter}{rng.randrange(n_groups)}<{kind}>"


def node_labels(n_layers: int, n_heads: int) -> dict[str, str]:
    """Labels of known heads, in the form reports use; for small models, of the heads an induction circuit has."""
    if n_layers > 20:
        return {name: f"L{name[1:].replace('.h', 'H')} {label}" for name, label in KNOWN_LABELS.items()}
    return {"a0.h3": "L0H3 previous token 0.99", **{f"a1.h{h}": f"L1H{h} induction 0.{88 - h}" for h in range(n_heads)}}


def heads(n_layers: int, n_heads: int, seed: int = 0) -> dict[str, Any]:
    """A heads.json: mostly small scores, known heads high, undefined values in layer 0."""
    rng = random.Random(seed)
    labels = {name: label.split(" ", 1)[1] for name, label in node_labels(n_layers, n_heads).items()}
    places = ((layer, head) for layer in range(n_layers) for head in range(n_heads))
    return {
        "schema": "heads/1",
        "model": "sample",
        "n_layers": n_layers,
        "n_heads": n_heads,
        "seed": seed,
        "loss_first_half": 13.9,
        "loss_second_half": 3.21,
        "heads": [_head(rng, layer, head, labels.get(f"a{layer}.h{head}")) for layer, head in places],
    }


def _head(rng: random.Random, layer: int, head: int, label: str | None) -> dict[str, Any]:
    kind, value = label.rsplit(" ", 1) if label else ("", "0")
    scores = {name: rng.betavariate(0.5, 9) for name in ("induction", "previous_token", "duplicate_token", "first_token")}
    if kind:
        scores[kind.replace(" ", "_")] = float(value)
    sharpness = rng.betavariate(2, 2.6)
    return {
        "layer": layer,
        "head": head,
        **scores,
        "induction_min": scores["induction"] * 0.9,
        "induction_baseline": 0.0329,
        "entropy": 3.4 * (1 - sharpness),
        "normalized_entropy": 1 - sharpness,
        "normalized_entropy_no_first": None if layer == 0 else (1 - sharpness) ** 0.5,
        "logit_std": 1.2 + 2.5 * sharpness,
        "temperature": 1 / (1.2 + 2.5 * sharpness),
        "labels": [kind.replace(" ", "-")] if kind else [],
        "evidence": {kind.replace(" ", "-"): f"puts {value} of its attention on the {kind} token"} if kind else {},
    }


def payload(fragment: Any) -> Any:
    """The data a fragment carries, as its script will read it."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', fragment.html, re.S)[1])
