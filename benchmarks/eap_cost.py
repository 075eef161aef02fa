"""What edge attribution patching costs beside plain passes: time and peak memory, in one process.

    python benchmarks/eap_cost.py                      SmolLM2-135M, 10 indirect-object pairs
    python benchmarks/eap_cost.py PATH --pairs 32      any model that `load_model` reads
    python benchmarks/eap_cost.py --random             random weights of SmolLM2-135M's shape, nothing to install

Baseline: one forward pass and one forward and backward pass of the same batch, towards activations (the cheaper reading) and
towards weights (what `loss.backward()` does by default). The calls take turns, so that other load on the machine hits all alike,
and each figure is the smallest of several runs. Memory is the largest sum of allocations alive at once beside the weights.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler, which counts memory, is chatty

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interp.circuits import METRICS, trace_circuit  # noqa: E402
from interp.prompts import PromptPairs, ioi_pairs  # noqa: E402
from interp.run import generator  # noqa: E402
from models import HookedTransformer, TransformerConfig, load_model  # noqa: E402

SMOLLM2_SHAPE = TransformerConfig(
    n_layers=30,
    d_model=576,
    n_heads=9,
    n_kv_heads=3,
    d_head=64,
    d_vocab=49152,
    n_ctx=2048,
    d_mlp=1536,
    gated_mlp=True,
    activation="silu",
    norm="rms_norm",
    positions="rotary",
    tie_embeddings=True,
    name="random weights of SmolLM2-135M's shape",
)


@dataclass(frozen=True)
class Cost:
    """Wall-clock seconds, seconds of processor time over all threads, and peak MiB of tensors beside the weights."""

    seconds: float
    processor: float
    mebibytes: float


def measure(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, Cost]:
    """The smallest of several runs of each call, taken in turns, after one that counts its memory and warms up."""
    memory = {name: peak_mebibytes(call) for name, call in calls.items()}
    wall: dict[str, list[float]] = {name: [] for name in calls}
    processor: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start, used = time.perf_counter(), time.process_time()
            call()
            wall[name].append(time.perf_counter() - start)
            processor[name].append(time.process_time() - used)
    return {name: Cost(min(wall[name]), min(processor[name]), memory[name]) for name in calls}


def peak_mebibytes(call: Callable[[], object]) -> float:
    """Largest sum of allocations alive at once during the call, from the profiler's record of the allocator."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    alive = peak = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    return peak / 2**20


def random_pairs(cfg: TransformerConfig, n: int, length: int = 14) -> PromptPairs:
    """Random tokens, clean and corrupt differing at three positions."""
    clean = torch.randint(0, cfg.d_vocab, (n, length), generator=generator(0))
    corrupt = clean.clone()
    corrupt[:, 2:5] = torch.randint(0, cfg.d_vocab, (n, 3), generator=generator(1))
    answers, mask = torch.full((n, 1), 1), torch.ones(n, length, dtype=torch.bool)
    return PromptPairs(clean, corrupt, answers, answers + 1, mask, torch.full((n,), length - 1))


def baselines(model: Any, pairs: PromptPairs) -> dict[str, Callable[[], object]]:
    """The passes that EAP is compared with."""
    rows = torch.arange(len(pairs))

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return METRICS["logit_diff"](logits[rows, pairs.last], pairs).sum()

    def forward() -> None:
        with torch.no_grad():
            model(pairs.clean)

    def to_activations() -> None:
        model.requires_grad_(False)
        start = model(pairs.clean, stop_at_layer=0).requires_grad_()
        metric(model(start, start_at_layer=0)).backward()
        model.requires_grad_(True)

    def to_weights() -> None:
        metric(model(pairs.clean)).backward()
        model.zero_grad(set_to_none=True)

    return {
        "forward": forward,
        "forward and backward, activations": to_activations,
        "forward and backward, weights": to_weights,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--random", action="store_true", help="random weights of SmolLM2-135M's shape")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    model = HookedTransformer(SMOLLM2_SHAPE) if options.random else load_model(options.model)
    text = not options.random and model.tokenizer is not None
    pairs = ioi_pairs(model, options.pairs) if text else random_pairs(model.cfg, options.pairs)
    n, length = pairs.clean.shape
    print(f"{model.cfg.name}: {n} pairs of {length} tokens, {torch.get_num_threads()} threads, {options.repeats} repeats")
    calls = {**baselines(model, pairs), "EAP": lambda: trace_circuit(model, pairs, progress=False)}
    costs = measure(calls, options.repeats)
    print(f"{'':36}{'seconds':>9}{'processor s':>13}{'peak MiB':>10}")
    for name, cost in costs.items():
        print(f"{name:36}{cost.seconds:9.3f}{cost.processor:13.3f}{cost.mebibytes:10.0f}")
    for kind in ("activations", "weights"):
        base = [costs["forward"], costs[f"forward and backward, {kind}"]]
        wall = costs["EAP"].seconds / sum(cost.seconds for cost in base)
        processor = costs["EAP"].processor / sum(cost.processor for cost in base)
        print(f"EAP costs {wall:.2f} times (processor time {processor:.2f}) forward + forward and backward towards {kind}")


if __name__ == "__main__":
    main()
