"""What the circuit analyses read of a model's weights, in one place: what heads write with, what readers read with, and norms.

The names are those of the classic HookedTransformer: `blocks[l].attn.W_Q [head, d_model, d_head]`, `W_K`, `W_V`, `W_O`, and
norms `blocks[l].ln1` with `kind`, `gain`, `bias` and `eps`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .errors import CircuitError
from .graph import Graph

CENTRED = ("layer_norm",)


@dataclass(frozen=True)
class NormWeights:
    """(x - centre) / scale * gain + bias, with scale = sqrt(mean square + eps); `centred` subtracts the mean first."""

    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"] | None
    eps: float
    centred: bool


@dataclass(frozen=True)
class ModelView:
    """A model as the circuit analyses see it."""

    model: Any
    graph: Graph
    dtype: torch.dtype
    """The dtype of scores: float32, or float64 for a model in float64."""

    @classmethod
    def of(cls, model: Any) -> ModelView:
        """Raises CircuitError for a model whose weights cannot be read under the names above."""
        try:
            attention = model.blocks[0].attn
            dtype = attention.W_Q.dtype
            _ = attention.W_K, attention.W_V, attention.W_O, model.unembed_resid
        except (AttributeError, IndexError, TypeError, KeyError) as error:
            raise CircuitError(
                f"circuits need a model with blocks[l].attn.W_Q, W_K, W_V, W_O and unembed_resid, but {type(model).__name__} "
                f"lacks one ({error}); load the weights with models.load_model."
            ) from None
        return cls(model, Graph.of(model), torch.float64 if dtype == torch.float64 else torch.float32)

    @property
    def block_order(self) -> str:
        """ "pre", "sandwich", "parallel" or "post"."""
        return self.model.cfg.block

    @property
    def rescales(self) -> bool:
        """Whether block norms rescale what earlier writers put into the stream."""
        return self.block_order == "post" and self.model.cfg.norm != "none"

    @property
    def device(self) -> torch.device:
        return self.model.blocks[0].attn.W_Q.device

    def norm(self, layer: int, name: str) -> NormWeights | None:
        """The norm "ln1", "ln2", "ln1_post" or "ln2_post" of a block; None where there is none."""
        norm = getattr(self.model.blocks[layer], name, None)
        if norm is None or self.model.cfg.norm == "none":
            return None
        bias = None if norm.bias is None else norm.bias.detach().to(self.dtype)
        return NormWeights(norm.gain.detach().to(self.dtype), bias, norm.eps, norm.kind in CENTRED)

    def attention_norm(self, layer: int) -> NormWeights | None:
        """The norm between the residual stream and q, k and v; post-norm blocks have none there."""
        return None if self.block_order == "post" else self.norm(layer, "ln1")

    def reader_weights(self, layer: int, kind: str) -> Float[Tensor, "head d_model d_head"]:
        """W_Q, W_K or W_V."""
        return getattr(self.model.blocks[layer].attn, f"W_{kind.upper()}").detach().to(self.dtype)

    def output_weights(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        """W_O with the linear part of the norm behind it, where a sandwich block has one."""
        return self._through_post_norm(layer, self.model.blocks[layer].attn.W_O.detach().to(self.dtype))

    def output_bias_share(self, layer: int) -> Float[Tensor, " d_model"] | None:
        """One head's equal share of the attention's output bias, where a norm makes it depend on the run; else None."""
        bias = self.model.blocks[layer].attn.b_O
        if bias is None or self.block_order not in ("sandwich", "post") or self.model.cfg.norm == "none":
            return None
        return self._through_post_norm(layer, bias.detach().to(self.dtype)) / self.graph.n_heads

    def _through_post_norm(self, layer: int, rows: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        norm = self.norm(layer, "ln1_post")
        if norm is None:
            return rows
        return (rows - rows.mean(-1, keepdim=True) if norm.centred else rows) * norm.gain


@contextmanager
def frozen_parameters(model: Any) -> Iterator[None]:
    """Parameters ask for no gradient inside the block; every flag is as before after it, also after an exception."""
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in asked:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)
