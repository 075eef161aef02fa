"""Running only a circuit: every edge outside it carries an ablated value, every edge inside the value of the run itself.

    x_v  =  stream of this run  +  sum over edges u -> v outside the circuit of (ablated term of u - its term in this run)

One forward pass computes all layers in turn; corrections are contracted per layer from the writers' terms met so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .access import ModelView
from .circuit import Circuit
from .contributions import Stage, Terms, Writes, walk
from .runs import last_logits, mlp_layers, padding_mask, plain_run, real_tokens, scale_norms, scattered

StageMeans = dict[tuple[int, str], Tensor]


@dataclass(frozen=True)
class Patching:
    """The corrupt run's terms (interchange, or resample, ablation)."""

    corrupt: Writes

    def stages(self, view: ModelView) -> Iterator[Stage]:
        return walk(view, self.corrupt)


@dataclass(frozen=True)
class Fixed:
    """The same terms for every prompt, one for all tokens or one per position; none at all is zero ablation."""

    means: StageMeans | None
    n_prompts: int

    def stages(self, view: ModelView) -> Iterator[Stage]:
        for layer, kind in view.graph.stages():
            yield Stage(layer, kind, self._terms(view, layer, kind))

    def _terms(self, view: ModelView, layer: int, kind: str) -> Float[Tensor, "writers tokens d_model"]:
        n = view.graph.n_upstream(layer, kind)
        if self.means is None:
            return torch.zeros(n, 1, view.model.cfg.d_model, dtype=view.dtype, device=view.device)
        means = self.means.get((layer, kind), self.means[view.graph.n_layers, "logits"])[:n]
        return means if means.shape[1] == 1 else means.repeat(1, self.n_prompts, 1)


Ablation = Patching | Fixed
"""Where the values of ablated edges come from: terms at every stage, broadcastable to [writers, tokens, d_model]."""


def mean_terms(view: ModelView, batches: list[tuple[Tensor, Any]], per_position: bool) -> StageMeans:
    """Mean term of each writer over real tokens, [writers, 1, d_model], or over prompts, [writers, pos, d_model].

    batches: (tokens, whatever says how they are padded and read). Only where earlier terms change on the way do stages differ.
    """
    sums: StageMeans = {}
    count = 0
    for tokens, reading in batches:
        writes = plain_run(view, tokens, reading).writes
        count += len(tokens) if per_position else writes.n_tokens
        for stage in walk(view, writes):
            if view.terms_change or stage.kind == "logits":
                total = stage.terms.unflatten(1, tokens.shape).sum(1) if per_position else stage.terms.sum(1, keepdim=True)
                key = (stage.layer, stage.kind)
                sums[key] = sums[key] + total if key in sums else total
    return {key: total / count for key, total in sums.items()}


def circuit_logits(view: ModelView, circuit: Circuit, pairs: Any, ablation: Ablation) -> Float[Tensor, "batch vocab"]:
    """Logits at each pair's last token when only the circuit's edges carry clean values."""
    run = _CircuitRun(view, circuit, pairs, ablation)
    options = {"attention_mask": padding_mask(pairs), "stop_at_layer": view.graph.n_layers}
    with torch.no_grad():
        final = view.model.run_with_hooks(pairs.clean, fwd_hooks=run.hooks(), **options)
        return last_logits(view, run.corrected_final(final), pairs)


class _CircuitRun:
    """Follows one forward pass: collects the terms of this run and corrects what readers read."""

    def __init__(self, view: ModelView, circuit: Circuit, pairs: Any, ablation: Ablation) -> None:
        self.view, self.graph, self.pairs = view, view.graph, pairs
        self.removed = (circuit.graph.allowed & ~circuit.mask).to(view.device)
        self.terms = Terms(view, int(pairs.attention_mask.sum()))
        self.ablated = ablation.stages(view)
        self.differences, self.n_known = torch.empty_like(self.terms.values), 0
        self.stage: tuple[int, str] | None = None
        self.corrections = self.terms.values[:0]
        self.waiting = {layer for layer, norm in scale_norms(view) if norm == "ln1_post"}
        self.z: Tensor | None = None

    def hooks(self) -> list[tuple[str, Any]]:
        """Hooks for one pass: what every writer puts out, and the inputs of readers that lose an edge."""
        norms = scale_norms(self.view)
        order = [("blocks.0.hook_resid_pre", self._input), ("blocks.*.attn.hook_z", self._heads)]
        order += [(f"blocks.{layer}.hook_mlp_out", self._mlp) for layer in mlp_layers(self.view)]
        order += [(f"blocks.{layer}.{norm}.hook_scale", self._scale) for layer, norm in norms]
        for layer, stage in self.graph.stages():
            for kind in self.graph.kinds(layer, stage) if stage != "logits" else ():
                if self._loses_edges(layer, kind):
                    order.append((self.view.reader_hook(layer, kind), self._reader(layer, kind)))
        return order

    def corrected_final(self, final: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        layer = self.graph.n_layers
        if not self._loses_edges(layer, "logits"):
            return final
        return final + self._correction(layer, "logits")[:, :, 0].to(final.dtype)

    def _loses_edges(self, layer: int, kind: str) -> bool:
        return bool(self.removed[:, self.graph.inputs(layer, kind)].any())

    def _input(self, tensor: Tensor, hook: Any) -> None:
        self.terms.put_input(self._real(tensor))

    def _heads(self, tensor: Tensor, hook: Any) -> None:
        if hook.layer in self.waiting:
            self.z = self._real(tensor)  # the scale of the norm behind comes next
        else:
            self.terms.put_heads(hook.layer, self._real(tensor), None)

    def _mlp(self, tensor: Tensor, hook: Any) -> None:
        self.terms.put_mlp(hook.layer, self._real(tensor))

    def _scale(self, tensor: Tensor, hook: Any) -> None:
        scale, norm = self._real(tensor), hook.name.split(".")[2]
        if norm == "ln1_post" and self.z is not None:
            self.terms.put_heads(hook.layer, self.z / scale[:, None], 1 / scale)
        else:
            self.terms.pass_norm(hook.layer, norm, scale)

    def _reader(self, layer: int, kind: str) -> Any:
        def correct(tensor: Tensor, hook: Any) -> Tensor:
            correction = self._correction(layer, kind).to(tensor.dtype)
            return tensor + (correction if kind in "qkv" else correction[:, :, 0])

        return correct

    def _correction(self, layer: int, kind: str) -> Float[Tensor, "batch pos readers d_model"]:
        """Sum over removed edges of ablated minus current term, for each reader of a kind."""
        group = kind if kind in ("mlp", "logits") else "attn"
        if self.stage != (layer, group):
            self._reach(layer, group)
        first, wanted = self.graph.inputs(layer, group).start, self.graph.inputs(layer, kind)
        mine = self.corrections[wanted.start - first : wanted.stop - first]
        return scattered(mine.transpose(0, 1), self.pairs)

    def _reach(self, layer: int, group: str) -> None:
        """Advance to a stage: differences of the writers that are new, or of all where terms change, and all its corrections."""
        self.stage = (layer, group)
        theirs = next(stage for stage in self.ablated if (stage.layer, stage.kind) == self.stage).terms
        n = self.graph.n_upstream(layer, group)
        new = slice(0 if self.view.terms_change else self.n_known, n)
        torch.sub(theirs[new], self.terms.values[new], out=self.differences[new])
        self.n_known = n
        removed = self.removed[:n, self.graph.inputs(layer, group)].to(self.view.dtype)
        self.corrections = (removed.T @ self.differences[:n].flatten(1)).unflatten(1, self.terms.values.shape[1:])

    def _real(self, tensor: Tensor) -> Tensor:
        return real_tokens(tensor, self.pairs).to(self.view.dtype)
