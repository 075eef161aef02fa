"""The residual stream as a sum of what each writer put into it, advanced reader by reader.

    pre, parallel          a head's term is z W_O; an MLP's is its output. Terms stay as they are.
    sandwich, output_norm  a head's term goes through the norm behind the attention with that norm's scale frozen at this
                           run's value, so terms (and a share of the bias) sum to the attention's output.
    post                   every block norm rescales, with its frozen scale, everything written before it; a norm's bias
                           belongs to the writers it follows. Terms then sum to the whole stream.
    normed_stream          the same with norms before what is read, and factors on the stream before what is written.

Terms have the shape [writers, tokens, d_model], tokens being all real tokens of a batch or a slice of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .access import ModelView, NormWeights

Stream = Float[Tensor, "tokens d_model"]
PerHead = Float[Tensor, "tokens head d_head"]
Each = Float[Tensor, "tokens _ _"]
"""Per head, in lists of layers that may differ in their heads."""
Scale = Float[Tensor, "tokens 1"]


@dataclass(frozen=True)
class Writes:
    """What one run wrote, or the difference of two runs; layers in lists.

    heads: z, divided by the scale of the norm behind the attention where there is one; bias: what multiplies a head's share of
    the output bias, 1 over that scale. mlps: None for a layer without. scales: what the block norms of post-norm blocks divided
    by, (layer, "ln1" or "ln2").
    """

    inputs: Stream
    heads: list[Each]
    bias: list[Scale | None]
    mlps: list[Stream | None]
    scales: dict[tuple[int, str], Scale]

    def __sub__(self, other: Writes) -> Writes:
        """Difference of two runs; has a meaning only where no norm rescales earlier writers."""
        heads = [a - b for a, b in zip(self.heads, other.heads, strict=True)]
        bias, mlps = (_differences(*both) for both in ((self.bias, other.bias), (self.mlps, other.mlps)))
        return Writes(self.inputs - other.inputs, heads, bias, mlps, {})

    def part(self, tokens: slice) -> Writes:
        """The same for a slice of the tokens."""
        bias, mlps = ([None if each is None else each[tokens] for each in values] for values in (self.bias, self.mlps))
        scales = {key: scale[tokens] for key, scale in self.scales.items()}
        return Writes(self.inputs[tokens], [z[tokens] for z in self.heads], bias, mlps, scales)

    @property
    def n_tokens(self) -> int:
        return self.inputs.shape[0]


def _differences(first: list[Tensor | None], second: list[Tensor | None]) -> list[Tensor | None]:
    return [None if a is None or b is None else a - b for a, b in zip(first, second, strict=True)]


class Terms:
    """The terms of all writers so far, filled in the order of computation."""

    def __init__(self, view: ModelView, n_tokens: int) -> None:
        self.view, self.graph = view, view.graph
        shape = (len(view.graph.writers), n_tokens, view.model.cfg.d_model)
        self.values = torch.empty(shape, dtype=view.dtype, device=view.device)

    def upstream(self, layer: int, kind: str) -> Float[Tensor, "writers tokens d_model"]:
        """Terms of the writers that these readers see."""
        return self.values[: self.graph.n_upstream(layer, kind)]

    def put_input(self, inputs: Stream) -> None:
        self.values[0] = inputs

    def put_heads(self, layer: int, z: PerHead, bias: Scale | None) -> None:
        place = self.graph.heads(layer)
        self._multiply(place.start, self.view.stream_factor(layer, "attn"))
        heads = self.values[place]
        torch.bmm(z.to(heads.dtype).transpose(0, 1), self.view.output_weights(layer), out=heads)
        share = self.view.output_bias_share(layer)
        if share is not None:
            heads += share if bias is None else bias * share
        if not self.graph.layers[layer].mlp:
            self._multiply(place.stop, self.view.stream_factor(layer, "end"))

    def put_mlp(self, layer: int, out: Stream) -> None:
        place = self.graph.mlp(layer)
        self._multiply(place, self.view.stream_factor(layer, "mlp"))
        self.values[place] = out
        self._multiply(place + 1, self.view.stream_factor(layer, "end"))

    def _multiply(self, n: int, factor: float | Tensor) -> None:
        """Multiply the first n terms."""
        if isinstance(factor, Tensor) or factor != 1:
            self.values[:n] *= factor

    def pass_norm(self, layer: int, name: str, scale: Scale) -> None:
        """Take everything written so far through a norm on the stream; its bias belongs to what was written last."""
        norm = self.view.norm(layer, name)
        if norm is None:
            return
        latest = self._latest(layer, name)
        rescale(self.values[: latest.stop], scale, norm)
        if norm.bias is not None:
            self.values[latest] += norm.bias / (latest.stop - latest.start)

    def _latest(self, layer: int, name: str) -> slice:
        """The writers behind which a norm on the stream stands."""
        heads, first = self.graph.heads(layer), self.view.order(layer).norms_first
        if name == ("ln2" if first else "ln1"):
            return heads
        if not first:
            return slice(heads.stop, heads.stop + 1)
        if layer and not self.graph.layers[layer - 1].mlp:
            return self.graph.heads(layer - 1)
        return slice(heads.start - 1, heads.start)


def rescale(terms: Float[Tensor, "writers tokens d_model"], scale: Scale, norm: NormWeights) -> None:
    """Take terms through a norm, in place, with its scale given and its bias left out."""
    if norm.centred:
        terms -= terms.mean(-1, keepdim=True)
    terms *= norm.gain / scale


@dataclass(frozen=True)
class Stage:
    """Readers that see the same terms: the "attn" or "mlp" readers of a layer, or the "logits"."""

    layer: int
    kind: str
    terms: Float[Tensor, "writers tokens d_model"]


def walk(view: ModelView, writes: Writes) -> Iterator[Stage]:
    """The terms as each group of readers sees them, in the order of computation. They share memory: use one before the next."""
    terms, graph = Terms(view, writes.n_tokens), view.graph
    terms.put_input(writes.inputs)
    for layer, (z, bias, out) in enumerate(zip(writes.heads, writes.bias, writes.mlps, strict=True)):
        first, rescaled = view.order(layer).norms_first, [name for of, name in writes.scales if of == layer]
        if first and "ln1" in rescaled:
            terms.pass_norm(layer, "ln1", writes.scales[layer, "ln1"])
        yield Stage(layer, "attn", terms.upstream(layer, "attn"))
        terms.put_heads(layer, z, bias)
        between = "ln2" if first else "ln1"
        if between in rescaled:
            terms.pass_norm(layer, between, writes.scales[layer, between])
        if out is None:
            continue
        yield Stage(layer, "mlp", terms.upstream(layer, "mlp"))
        terms.put_mlp(layer, out)
        if not first and "ln2" in rescaled:
            terms.pass_norm(layer, "ln2", writes.scales[layer, "ln2"])
    yield Stage(graph.n_layers, "logits", terms.values)


def walk_difference(view: ModelView, base: Writes, other: Writes) -> Iterator[Stage]:
    """D_u = other's term minus base's term of every writer, as each group of readers sees it."""
    if not view.rescales:
        yield from walk(view, other - base)
        return
    for mine, theirs in zip(walk(view, base), walk(view, other), strict=True):
        yield Stage(mine.layer, mine.kind, theirs.terms - mine.terms)
