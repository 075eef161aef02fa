"""Gradients at each reader's own input, before its norm.

A query head's input x reaches it only through q = norm(x) W_Q, so the gradient there is that of q pulled back through W_Q and
the norm's Jacobian at the clean point; likewise for k and v. It needs no copy of the residual stream per head in the forward
pass. Mixers that make q, k and v in another way (through a latent, by a convolution) are given such copies instead, and the
gradient is taken there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .access import ModelView, NormWeights
from .contributions import PerHead, Stream


@dataclass(frozen=True)
class NormPoint:
    """A norm at a point x: unit = (x - centre) / scale [tokens, d_model], scale [tokens, 1]."""

    unit: Stream
    scale: Float[Tensor, "tokens 1"]
    weights: NormWeights


def norm_point(x: Stream, weights: NormWeights) -> NormPoint:
    """Linearisation point of a norm at x."""
    x = x - x.mean(-1, keepdim=True) if weights.centred else x
    scale = (x.pow(2).mean(-1, keepdim=True) + weights.eps).sqrt()
    return NormPoint(x / scale, scale, weights)


def norm_vjp(gradient: Float[Tensor, "*readers tokens d_model"], point: NormPoint) -> Float[Tensor, "*readers tokens d_model"]:
    """Gradient at a norm's input from the gradient at its output.

    With u = (x - centre) / s and g = gradient * gain: (g - u mean(g u)) / s, less its mean where the norm centres.
    """
    g = gradient * (point.weights.gain / point.scale)
    g = g - point.unit * (g * point.unit).mean(-1, keepdim=True)
    return g - g.mean(-1, keepdim=True) if point.weights.centred else g


def pull_back(
    gradient: PerHead, weights: Float[Tensor, "head d_model d_head"], point: NormPoint | None
) -> Float[Tensor, "head tokens d_model"]:
    """Gradient at every head's own input from the gradient at its q, k or v. Equals norm_vjp of gradient W^T, computed in d_head.

    Folding gain and centring into the weights leaves one product and a rank-one correction per token: as u is centred too,
    mean(g u) is (gradient / s) . (u W) / d_model.
    """
    by_head = gradient.transpose(0, 1)
    if point is None:
        return by_head @ weights.mT
    gain, unit = point.weights.gain, point.unit
    by_head = by_head / point.scale
    projected = (unit * gain) @ weights.transpose(0, 1).flatten(1)
    along_unit = (by_head * projected.unflatten(1, weights.shape[::2]).transpose(0, 1)).sum(-1, keepdim=True) / unit.shape[-1]
    folded = weights.mT * gain
    if point.weights.centred:
        folded = folded - folded.mean(-1, keepdim=True)
    return torch.addcmul(by_head @ folded, along_unit, unit, value=-1)


@dataclass(frozen=True)
class ReaderGradients:
    """Gradients of the summed metric over real tokens.

    points: by layer and kind. "q", "k", "v" of layers that read linearly: at q, k, v themselves, [tokens, head, d_head]; of
    others: at each head's own input, [tokens, head, d_model]; "x" and "mlp": at the input, [tokens, d_model].
    logits: at the stream after the last block.
    streams: the residual stream before each block at the point of linearisation.
    """

    view: ModelView
    points: dict[tuple[int, str], Float[Tensor, " tokens *axes"]]
    logits: Stream
    streams: list[Stream]

    def at(self, layer: int, kind: str, tokens: slice) -> Float[Tensor, "readers tokens d_model"]:
        """At the inputs of one stage's readers ("attn": all of the mixer's, in graph order; "mlp"; "logits"), for some tokens."""
        if kind == "logits":
            return self.logits[None, tokens].to(self.view.dtype)
        parts = {name: self.points[layer, name][tokens].to(self.view.dtype) for name in self.view.graph.kinds(layer, kind)}
        if kind == "attn" and self.view.reads_linearly(layer):
            return self._pulled_back(layer, parts, tokens)
        return torch.cat([part[None] if part.dim() == 2 else part.transpose(0, 1) for part in parts.values()])

    def _pulled_back(self, layer: int, parts: dict[str, PerHead], tokens: slice) -> Float[Tensor, "readers tokens d_model"]:
        norm = self.view.attention_norm(layer)
        point = None if norm is None else norm_point(self.streams[layer][tokens].to(self.view.dtype), norm)
        return torch.cat([pull_back(part, self.view.reader_weights(layer, kind), point) for kind, part in parts.items()])
