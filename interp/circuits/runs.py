"""Running a model for circuit analysis: what each writer put out, and gradients at the readers. Leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .access import ModelView, frozen_parameters
from .contributions import Writes
from .gradients import ReaderGradients
from .metrics import Metric, Values

INPUT = "blocks.0.hook_resid_pre"
Resid = Float[Tensor, "batch pos d_model"]


@dataclass(frozen=True)
class Run:
    """One forward pass without gradients. final: logits at each pair's last token; streams: the one before each block."""

    writes: Writes
    logits: Float[Tensor, "batch vocab"]
    inputs: Resid
    streams: list[Resid]
    final: Resid


@dataclass(frozen=True)
class GradientRun:
    """One forward and backward pass. values: the metric per pair."""

    writes: Writes
    gradients: ReaderGradients
    logits: Float[Tensor, "batch vocab"]
    values: Values


def plain_run(view: ModelView, tokens: Tensor, pairs: Any) -> Run:
    """Run the model on tokens [batch, pos], padded and read as the pairs are."""
    streams = _each(view, "hook_resid_pre")
    with torch.no_grad():
        final, cache = _forward(view, tokens, pairs, _write_names(view) + streams, detach=True)
        logits = last_logits(view, final, pairs)
    return Run(_writes(view, cache, pairs), logits, cache[INPUT], [cache[name] for name in streams], final)


def gradient_run(
    view: ModelView, pairs: Any, metric: Metric, reference: Tensor | None = None, start: Resid | None = None
) -> GradientRun:
    """Gradients of the metric, summed over pairs, on the clean prompts, or from another residual stream before block 0.

    reference: logits of the whole model on the clean prompts; None when this run is that one.
    """

    def leaf(tensor: Tensor, hook: Any) -> Tensor:
        return (tensor if start is None else start).detach().requires_grad_()

    points = gradient_points(view)
    kept = _write_names(view) + _each(view, "hook_resid_pre") + list(points.values())
    with torch.enable_grad(), frozen_parameters(view.model):
        with view.model.hooks(fwd_hooks=[(INPUT, leaf)]):
            final, cache = _forward(view, pairs.clean, pairs, kept, detach=False)
        logits = last_logits(view, final, pairs)
        values = metric(logits, pairs, logits.detach() if reference is None else reference)
        found = _gradients(values, {"final": final, **{name: cache[name] for name in points.values()}})
    at_points = {place: real_tokens(found[name], pairs) for place, name in points.items()}
    streams = [real_tokens(cache[name].detach(), pairs) for name in _each(view, "hook_resid_pre")]
    gradients = ReaderGradients(view, at_points, real_tokens(found["final"], pairs), streams)
    return GradientRun(_writes(view, cache, pairs), gradients, logits.detach(), values.detach())


def gradient_points(view: ModelView) -> dict[tuple[int, str], str]:
    """The hook where the gradient of each layer's readers of a kind is taken.

    A hook at an input hands on a copy that only its reader reads, so the gradient there leaves out the residual stream's own.
    """
    points = {}
    for layer, stage in view.graph.stages():
        if stage == "logits":
            continue
        for kind in view.graph.kinds(layer, stage):
            direct = stage == "attn" and view.reads_linearly(layer)
            points[layer, kind] = f"blocks.{layer}.attn.hook_{kind}" if direct else view.reader_hook(layer, kind)
    return points


def _gradients(values: Values, points: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradient of the summed values at each tensor; 0 at one that they do not depend on."""
    if not values.requires_grad:
        return {name: torch.zeros_like(point) for name, point in points.items()}
    found = torch.autograd.grad(values.sum(), list(points.values()), allow_unused=True)
    pairs = zip(points.items(), found, strict=True)
    return {name: torch.zeros_like(point) if gradient is None else gradient for (name, point), gradient in pairs}


def last_logits(view: ModelView, final: Resid, pairs: Any) -> Float[Tensor, "batch vocab"]:
    """Logits at each pair's last token from the stream after the last block; no other position is unembedded."""
    rows = torch.arange(len(final), device=final.device)
    return view.model.unembed_resid(final[rows, pairs.last.to(final.device)][:, None])[:, 0]


def padding_mask(pairs: Any) -> Tensor | None:
    """The attention mask, or None when nothing is padded."""
    return pairs.attention_mask if pairs.padded else None


def _forward(view: ModelView, tokens: Tensor, pairs: Any, names: list[str], detach: bool) -> tuple[Tensor, Mapping[str, Tensor]]:
    options = {"attention_mask": padding_mask(pairs), "stop_at_layer": view.graph.n_layers}
    return view.model.run_with_cache(tokens, names=sorted(set(names)), detach=detach, **options)


def _each(view: ModelView, hook: str) -> list[str]:
    return [f"blocks.{layer}.{hook}" for layer in range(view.graph.n_layers)]


def _write_names(view: ModelView) -> list[str]:
    names = [INPUT, *_each(view, "attn.hook_z")]
    names += [f"blocks.{layer}.hook_mlp_out" for layer in mlp_layers(view)]
    return names + [f"blocks.{layer}.{norm}.hook_scale" for layer, norm in scale_norms(view)]


def mlp_layers(view: ModelView) -> list[int]:
    """Layers that have an MLP."""
    return [number for number, layer in enumerate(view.graph.layers) if layer.mlp]


def scale_norms(view: ModelView) -> list[tuple[int, str]]:
    """Norms whose scale decides what a writer's term is, as (layer, name)."""
    found = []
    for number, layer in enumerate(view.graph.layers):
        order = view.order(number)
        names = ["ln1_post"] if order.behind else []
        names += (["ln1", "ln2"] if layer.mlp else ["ln1"]) if order.rescales else []
        found += [(number, name) for name in names if view.norm(number, name) is not None]
    return found


def _writes(view: ModelView, cache: Mapping[str, Tensor], pairs: Any) -> Writes:
    def real(name: str) -> Tensor:
        return real_tokens(cache[name].detach(), pairs).to(view.dtype)

    layers = range(view.graph.n_layers)
    heads = [real(f"blocks.{layer}.attn.hook_z") for layer in layers]
    mlps = [real(f"blocks.{layer}.hook_mlp_out") if view.graph.layers[layer].mlp else None for layer in layers]
    bias: list[Tensor | None] = [None for _ in layers]
    scales = {key: real(f"blocks.{key[0]}.{key[1]}.hook_scale") for key in scale_norms(view)}
    for layer in layers:
        if (scale := scales.pop((layer, "ln1_post"), None)) is not None:
            heads[layer], bias[layer] = heads[layer] / scale[:, None], 1 / scale
    return Writes(real(INPUT), heads, bias, mlps, scales)


def real_tokens(x: Float[Tensor, "batch pos *axes"], pairs: Any) -> Float[Tensor, " tokens *axes"]:
    """Real tokens only, pair after pair."""
    return x[pairs.attention_mask.to(x.device)] if pairs.padded else x.flatten(0, 1)


def scattered(x: Float[Tensor, " tokens *axes"], pairs: Any) -> Float[Tensor, "batch pos *axes"]:
    """The inverse of `real_tokens`, with 0 at padding."""
    mask = pairs.attention_mask
    if not pairs.padded:
        return x.unflatten(0, mask.shape)
    placed = x.new_zeros(*mask.shape, *x.shape[1:])
    placed[mask.to(x.device)] = x
    return placed
