"""What the tests of head scores share: a small random model, and short ways to read and compare results."""

from __future__ import annotations

import torch

from interp.heads import HeadScores
from interp.heads.scores_result import COLUMNS
from models import HookedTransformer, TransformerConfig


def labels_of(scores: HeadScores) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label in scores.labels:
        found.setdefault(f"{label.layer}.{label.head}", []).append(label.name)
    return found


def column(scores: HeadScores, name: str, layer: int = 0, head: int = 0) -> float:
    return float(getattr(scores, name)[layer, head])


def random_model(seed: int = 0, scale: float = 0.5, **changes) -> HookedTransformer:
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 4, "d_head": 4, "d_vocab": 40, "n_ctx": 48, "d_mlp": 24, "bos_token_id": 0}
    model = HookedTransformer(TransformerConfig(**(sizes | changes)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return model


def assert_same(a: HeadScores, b: HeadScores, atol: float = 1e-5, but: tuple[str, ...] = ()) -> None:
    for name in COLUMNS:
        if name not in but:
            torch.testing.assert_close(
                getattr(a, name), getattr(b, name), atol=atol, rtol=atol, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
            )
