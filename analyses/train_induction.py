"""How does an induction circuit form? Train a small attention-only model from nothing and watch it appear.

Each training row is BOS and a random segment tiled with a random period, so that the only way to predict is to find the
earlier occurrence of the present token and copy what followed it. A fixed period would be solved by attending a fixed offset
instead. Within a few hundred steps the loss on repeats falls in one drop, as a previous-token head in layer 0 and induction
heads in layer 1 form together (Olsson et al. 2022, arXiv 2209.11895). A model of one layer stays on the plateau.

Writes the trained model (config.json, model.safetensors), training.json with the curve of each seed, report.html, manifest.json.
The weights saved are those of the first seed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from analyses._cli import option, print_table, run_script
from analyses._pages import training_page
from interp.errors import InterpError
from interp.prompts import repeated_tokens
from interp.run import Manifest, generator, progress, write_json, write_text
from models import HookedTransformer, TransformerConfig

SCHEMA = "training/1"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The recipe. Its defaults made the model that is shipped as `induction-2l`."""

    out: Path = option(Path("out/train_induction"), "folder for the trained model and its curve")
    seeds: tuple[int, ...] = option((0, 1, 2), "one training run each; the first one's weights are saved")
    steps: int = option(3000, "optimiser steps per seed")
    layers: int = option(2, "layers; with 1 no induction head can form")
    heads: int = option(4, "heads per layer")
    d_model: int = option(64, "width of the residual stream")
    vocab: int = option(64, "tokens besides BOS")
    length: int = option(64, "positions, BOS included")
    min_period: int = option(8, "shortest repeated segment, in tokens")
    max_period: int = option(28, "longest repeated segment, in tokens")
    batch: int = option(64, "rows per step")
    learning_rate: float = option(3e-3, "after the warm-up")
    warmup: int = option(50, "steps over which the learning rate rises")
    weight_decay: float = option(0.01, "of AdamW")
    eval_every: int = option(50, "steps between points of the curve")
    threads: int = option(1, "CPU threads; another number rounds differently and so ends at slightly other weights")
    progress: bool | None = option(None, "progress bars; default: on a terminal only")

    def __post_init__(self) -> None:
        for name in ("steps", "layers", "heads", "d_model", "vocab", "length", "batch", "eval_every", "threads"):
            if (value := getattr(self, name)) < 1:
                raise InterpError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        if self.d_model % self.heads:
            raise InterpError(f"--d-model must be a multiple of --heads, got {self.d_model} and {self.heads}.")
        if not 1 <= self.min_period <= self.max_period:
            raise InterpError(f"--max-period must be at least --min-period, got {self.max_period} and {self.min_period}.")


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation on repeated unique tokens: losses in nats, scores as attention mass in 0..1."""

    step: int
    first_half_loss: float
    second_half_loss: float
    induction: float
    """Of the last layer's best head: attention to the successor of the earlier occurrence, mean over distances."""
    induction_min: float
    """The same head's score at its worst distance."""
    previous_token: float
    """Of layer 0's best head."""


def new_model(config: TrainConfig, seed: int) -> HookedTransformer:
    """Untrained weights drawn from N(0, 1/d_model), the same for the same seed."""
    shape = TransformerConfig(
        n_layers=config.layers,
        d_model=config.d_model,
        n_heads=config.heads,
        d_head=config.d_model // config.heads,
        d_vocab=config.vocab + 1,
        n_ctx=config.length,
        norm="none",
        final_norm=False,
        positions="learned",
        bos_token_id=config.vocab,
        default_prepend_bos=True,
        name=f"induction-{config.layers}l",
    )
    with torch.random.fork_rng(devices=[]):  # modules draw initial values of their own
        model = HookedTransformer(shape)
    draw = generator(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 1 / math.sqrt(config.d_model), generator=draw)
    return model


def training_batch(config: TrainConfig, draw: torch.Generator) -> Int[Tensor, "batch pos"]:
    """BOS and random tokens, tiled row by row with a period drawn from min_period..max_period."""
    size = (config.batch, config.length - 1)
    random = torch.randint(config.vocab, size, generator=draw)
    period = torch.randint(config.min_period, config.max_period + 1, (config.batch, 1), generator=draw)
    tiled = random.gather(1, torch.arange(size[1]).expand(size) % period)
    return torch.cat([torch.full((config.batch, 1), config.vocab), tiled], dim=1)


def next_token_loss(logits: Float[Tensor, "batch pos vocab"], tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch query"]:
    """Cross-entropy in nats at every position but the last."""
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")


def train(config: TrainConfig, seed: int) -> tuple[HookedTransformer, list[CurvePoint]]:
    """One model and its curve."""
    model = new_model(config, seed)
    draw = generator(seed + 1_000_003)
    optimizer = torch.optim.AdamW(model.parameters(), config.learning_rate, betas=(0.9, 0.98), weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / config.warmup))
    curve = [evaluate(model, config, 0)]
    bar = progress(range(1, config.steps + 1), description=f"seed {seed}", enabled=config.progress)
    for step in bar:
        tokens = training_batch(config, draw)
        loss = next_token_loss(model(tokens), tokens).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % config.eval_every == 0 or step == config.steps:
            curve.append(evaluate(model, config, step))
            bar.set_postfix(loss=f"{curve[-1].second_half_loss:.2f}", induction=f"{curve[-1].induction:.2f}")
    return model, curve


@torch.no_grad()
def evaluate(model: HookedTransformer, config: TrainConfig, step: int, batch: int = 32) -> CurvePoint:
    """Losses and best scores on BOS and a segment of unique tokens twice, over three distances."""
    distances = [n for n in (12, 18, 24) if 2 * n < config.length]
    losses, induction, previous = [], [], []
    for n in distances:
        tokens = repeated_tokens(config.vocab + 1, n, batch, bos_token_id=config.vocab, seed=n)
        logits, cache = model.run_with_cache(tokens, names="blocks.*.attn.hook_pattern")
        loss = next_token_loss(logits, tokens)
        # The first token of the repeat is as random as the segment before it, and counts to the first half.
        losses.append(torch.stack([loss[:, : n + 1].mean(), loss[:, n + 1 :].mean()]))
        last, first = cache["pattern", config.layers - 1], cache["pattern", 0]
        # Queries n+1..2n repeat a token; the successor of its earlier occurrence lies n - 1 keys back.
        induction.append(last.diagonal(1 - n, 2, 3)[..., 2:].mean((0, 2)))
        previous.append(first.diagonal(-1, 2, 3)[..., 1:].mean((0, 2)))
    first_half, second_half = torch.stack(losses).mean(0).tolist()
    scores = torch.stack(induction)
    best = int(scores.mean(0).argmax())
    return CurvePoint(
        step=step,
        first_half_loss=first_half,
        second_half_loss=second_half,
        induction=float(scores[:, best].mean()),
        induction_min=float(scores[:, best].min()),
        previous_token=float(torch.stack(previous).mean(0).max()),
    )


def run(config: TrainConfig) -> dict[int, list[CurvePoint]]:
    """Train every seed, save the first one's weights, return the curves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        return _train_all(config)
    finally:
        torch.set_num_threads(threads)


def _train_all(config: TrainConfig) -> dict[int, list[CurvePoint]]:
    curves: dict[int, list[CurvePoint]] = {}
    for seed in config.seeds:
        model, curves[seed] = train(config, seed)
        if seed == config.seeds[0]:
            manifest = Manifest.start(model, model.cfg.name, seed=seed, settings=_settings(config))
            model.save(config.out)
        write_json(config.out / "training.json", _record(config, curves))
    manifest = manifest.finished()
    manifest.write(config.out)
    write_text(config.out / "report.html", training_page(_record(config, curves), manifest.to_dict()))
    print_table(
        f"after {config.steps} steps ({config.out})",
        ["seed", "second-half loss", "first-half loss", "induction", "at worst distance", "previous token"],
        [[seed, *_row(curve[-1])] for seed, curve in curves.items()],
    )
    return curves


def _row(point: CurvePoint) -> list[float]:
    return [point.second_half_loss, point.first_half_loss, point.induction, point.induction_min, point.previous_token]


def _settings(config: TrainConfig) -> dict[str, Any]:
    """What decides the weights."""
    return {key: value for key, value in asdict(config).items() if key not in ("out", "progress")}


def _record(config: TrainConfig, curves: dict[int, list[CurvePoint]]) -> dict[str, Any]:
    settings, defaults = _settings(config), TrainConfig.__dataclass_fields__
    changed = {key: value for key, value in settings.items() if value != defaults[key].default}
    flags = [f"--{key.replace('_', '-')} {_text(value)}" for key, value in changed.items()]
    return {
        "schema": SCHEMA,
        "command": " ".join(["python -m analyses.train_induction", *flags]),
        "seed_of_weights": config.seeds[0],
        "settings": settings,
        "torch": str(torch.__version__),
        "curves": [{"seed": seed, "points": [_rounded(point) for point in curve]} for seed, curve in curves.items()],
    }


def _rounded(point: CurvePoint) -> dict[str, float]:
    return {key: round(value, 5) for key, value in asdict(point).items()}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    return run_script(TrainConfig, run, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
