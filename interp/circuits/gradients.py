"""Gradients at each reader's own input, before its norm, from gradients at q, k and v.

A query head's input x reaches it only through q = norm(x) W_Q, so the gradient there is that of q pulled back through W_Q and
the norm's Jacobian at the clean point. It needs no copy of the residual stream per head in the forward pass.
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
    """Gradients of the summed metric over real tokens: at q, k, v per layer, and at the inputs of MLPs and logits.

    streams: the residual stream before each block at the point of linearisation.
    """

    view: ModelView
    heads: dict[str, list[PerHead]]
    mlps: list[Stream]
    logits: Stream
    streams: list[Stream]

    def at(self, layer: int, kind: str, tokens: slice) -> Float[Tensor, "readers tokens d_model"]:
        """At the inputs of one stage's readers ("attn": q, k, v in graph order; "mlp"; "logits"), for a slice of the tokens."""
        dtype = self.view.dtype
        if kind == "logits":
            return self.logits[None, tokens].to(dtype)
        if kind == "mlp":
            return self.mlps[layer][None, tokens].to(dtype)
        norm = self.view.attention_norm(layer)
        point = None if norm is None else norm_point(self.streams[layer][tokens].to(dtype), norm)
        parts = [
            pull_back(self.heads[name][layer][tokens].to(dtype), self.view.reader_weights(layer, name), point) for name in "qkv"
        ]
        return torch.cat(parts)
