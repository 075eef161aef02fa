"""What the circuit analyses read of a model, in one place: its layers, what heads write with, what readers read with, and norms.

The names are those of the classic HookedTransformer: `blocks[l].attn.W_Q [head, d_model, d_head]`, `W_K`, `W_V`, `W_O`, and
norms `blocks[l].ln1` with `kind`, `gain`, `bias` and `eps`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..protocol import has_logits, has_two_stacks
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
        """Raises CircuitError for a model whose weights cannot be read under the names above, that has no head, or two stacks."""
        if has_two_stacks(model):
            raise CircuitError(
                "circuits are traced in one residual stream, and the decoder of an encoder-decoder reads the encoder's too, by "
                "cross-attention; such models cannot be traced yet."
            )
        if not has_logits(model):
            raise CircuitError(
                "circuits end at logits, and this model has no head: it returns its last states; load it with a head to trace it."
            )
        try:
            for block in model.blocks:
                _ = block.attn.W_O, model.unembed_resid
            dtype = model.blocks[0].attn.W_O.dtype
        except (AttributeError, IndexError, TypeError, KeyError) as error:
            raise CircuitError(
                f"circuits need a model with blocks[l].attn.W_O and its like and with unembed_resid, but {type(model).__name__} "
                f"lacks one ({error}); load the weights with models.load_model."
            ) from None
        return cls(model, Graph.of(model), torch.float64 if dtype == torch.float64 else torch.float32)

    def order(self, layer: int) -> Any:
        """Where the norms of a block are: `before` its readers, `behind` what it writes, over the whole stream (`rescales`)."""
        return self.model.blocks[layer].order

    @cached_property
    def rescales(self) -> bool:
        """Whether block norms rescale what earlier writers put into the stream."""
        return any(self.order(layer).rescales and self.norm(layer, "ln1") for layer in range(self.graph.n_layers))

    def stream_factor(self, layer: int, place: str) -> float | Tensor:
        """What a block multiplies the stream by, before "attn" or "mlp" writes to it or at its "end"."""
        block = self.model.blocks[layer]
        if place == "end":
            return block.scalar.detach().to(self.dtype) if hasattr(block, "scalar") else 1.0
        return getattr(block.cfg, f"{place}_stream_scale") if block.order.norms_first else 1.0

    @cached_property
    def terms_change(self) -> bool:
        """Whether a writer's term is not the same at all readers, as norms rescale it or blocks multiply the stream."""
        places = [(layer, place) for layer in range(self.graph.n_layers) for place in ("attn", "mlp", "end")]
        return self.rescales or any(isinstance(each := self.stream_factor(*at), Tensor) or each != 1 for at in places)

    @property
    def note(self) -> str:
        """Which layers have one reader for the whole mixer, and why; empty where none has."""
        found: dict[str, list[str]] = {}
        for layer, each in enumerate(self.graph.layers):
            if each.is_whole:
                found.setdefault(type(self.model.blocks[layer].attn).__name__, []).append(str(layer))
        layers = "; ".join(f"layers {', '.join(layers)} ({mixer})" for mixer, layers in found.items())
        return f"One reader <x> for the whole mixer, which takes more than q, k and v from it: {layers}." if found else ""

    @property
    def device(self) -> torch.device:
        return self.model.blocks[0].attn.W_O.device

    def norm(self, layer: int, name: str) -> NormWeights | None:
        """The norm "ln1", "ln2", "ln1_post" or "ln2_post" of a block; None where there is none."""
        norm: Any = getattr(self.model.blocks[layer], name, None)
        if not hasattr(norm, "gain"):
            return None
        bias = None if norm.bias is None else norm.bias.detach().to(self.dtype)
        return NormWeights(norm.gain.detach().to(self.dtype), bias, norm.eps, norm.kind in CENTRED)

    def attention_norm(self, layer: int) -> NormWeights | None:
        """The norm between the residual stream and q, k and v; None where they read the stream as it is."""
        return self.norm(layer, "ln1") if self.order(layer).before else None

    def reads_linearly(self, layer: int) -> bool:
        """Whether all that a mixer takes from the normed stream is its product with W_Q, W_K and W_V (plus a bias)."""
        mixer = self.model.blocks[layer].attn
        return mixer.linear_reads and not self.graph.layers[layer].is_whole and not _read_by_steps(mixer)

    def reader_hook(self, layer: int, kind: str) -> str:
        """The hook at a reader's own input, before its norm; q, k and v have one copy per head there."""
        names = {"mlp": "hook_mlp_in", "x": "hook_mixer_in"}
        return f"blocks.{layer}.{names.get(kind, f'hook_{kind}_input')}"

    def reader_weights(self, layer: int, kind: str) -> Float[Tensor, "head d_model d_head"]:
        """W_Q, W_K or W_V."""
        return getattr(self.model.blocks[layer].attn, f"W_{kind.upper()}").detach().to(self.dtype)

    def output_weights(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        """W_O with the linear part of the norm behind it, where a block has one there, and the block's scale."""
        return self._as_written(layer, self.model.blocks[layer].attn.W_O)

    def output_bias_share(self, layer: int) -> Float[Tensor, " d_model"] | None:
        """One head's equal share of the attention's output bias, where a norm makes it depend on the run; else None."""
        bias, order = self.model.blocks[layer].attn.b_O, self.order(layer)
        depends = (order.behind and self.norm(layer, "ln1_post")) or (order.rescales and self.norm(layer, "ln1"))
        if bias is None or not depends:
            return None
        return self._as_written(layer, bias) / self.graph.layers[layer].n_heads

    def _as_written(self, layer: int, rows: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        norm, scale = self.norm(layer, "ln1_post"), self.model.blocks[layer].cfg.residual_scale
        rows = rows.detach().to(self.dtype)
        if norm is not None:
            rows = (rows - rows.mean(-1, keepdim=True) if norm.centred else rows) * norm.gain
        return rows if scale == 1 else rows * scale


def _read_by_steps(mixer: Any) -> bool:
    """Whether a step between pattern and output, such as a gate, reads the stream too."""
    return any(step.reads_input for step in mixer.out_steps.values())


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
