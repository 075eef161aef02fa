"""Several streams side by side, of which each block computes on one (AltUp, Baykal et al. 2023, arXiv 2301.13310): Gemma 3n.

    streams ─ predict ─┬─ active ─ hook_resid_pre ─ attention, LAuReL, MLP ─ hook_resid_late ─┐
                       └─────────────────────────────────────────────────────────── correct ──┴─ streams

Predicting adds to each stream a mix of all; correcting adds to each a share of what the block changed in the active one. The
coefficients of both are made of the active stream, for each token. Streams come first: [stream, batch, pos, d_model].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .hooks import HookPoint
from .norms import Shared, make_norm, widened

if TYPE_CHECKING:
    from .attention.context import AttentionContext
    from .block import Block
    from .cache import KVCache
    from .config import TransformerConfig

Resid = Float[Tensor, "batch pos d_model"]
StreamsOf = Float[Tensor, "stream batch pos d_model"]

SMALLEST = 1e-5
"""Least mean square that a projected stream is divided by."""


class Streams(nn.Module):
    """From the token embeddings to the streams before the first block, and from those after the last to the one that is read.

    Every stream but the first is a projection of the embedding, brought to its size; at the end each is projected once more,
    brought to the size of the first, and `hook_merged` is the mean.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        n_streams = _options(cfg).n_streams
        self.enter_proj = nn.Parameter(_start(n_streams - 1, cfg.d_model, cfg.d_model))
        self.leave_proj = nn.Parameter(_start(n_streams - 1, cfg.d_model, cfg.d_model))
        self.hook_merged = HookPoint("streams.hook_merged")

    def enter(self, x: Resid) -> StreamsOf:
        """x: the token embeddings, which are the first stream."""
        others = torch.einsum("soi,bpi->sbpo", self.enter_proj, x)
        return torch.cat((x[None], _sized(others, x)))

    def leave(self, streams: StreamsOf) -> Resid:
        """The stream that the final norm reads."""
        others = torch.einsum("soi,sbpi->sbpo", self.leave_proj, streams[1:])
        return self.hook_merged(torch.cat((streams[:1], _sized(others, streams[0]))).mean(0))


class AltUp(nn.Module):
    """The coefficients of one block, `hook_predict` and `hook_correct`, and the steps that use them."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        options = _options(cfg)
        self.n_streams, self.active, self.eps = options.n_streams, options.active, cfg.norm_eps
        self.router = nn.Linear(cfg.d_model, self.n_streams, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(cfg.d_model))
        self.predicting = nn.Linear(self.n_streams, self.n_streams**2, bias=False)
        self.correcting = nn.Linear(self.n_streams, self.n_streams, bias=False)
        self.read_scale = nn.Parameter(torch.zeros(cfg.d_model)) if options.scaled_read and cfg.d_layer_embed else None
        self.hook_predict = HookPoint("altup.hook_predict")
        self.hook_correct = HookPoint("altup.hook_correct")

    def predict(self, streams: StreamsOf) -> StreamsOf:
        """The streams as the block finds them: each plus a mix of all."""
        square = (self.n_streams, self.n_streams)
        mix = self.hook_predict(self.predicting(self._modes(streams[self.active])).unflatten(-1, square))
        return streams + torch.einsum("bpts,sbpd->tbpd", mix, streams)

    def correct(self, predicted: StreamsOf, late: Resid) -> StreamsOf:
        """The streams after the block, whose outcome in the active stream is `late`."""
        share = self.hook_correct(self.correcting(self._modes(late)) + 1)
        return predicted + share.permute(2, 0, 1)[..., None] * (late - predicted[self.active])

    def read(self, streams: StreamsOf) -> Resid:
        """What the layer's token embedding is read with."""
        x = streams[self.active]
        return x if self.read_scale is None else x * self.read_scale

    def _modes(self, x: Resid) -> Float[Tensor, "batch pos stream"]:
        """Numbers between -1 and 1 that both kinds of coefficients are linear in."""
        normed = F.rms_norm(widened(x), x.shape[-1:], widened(self.norm_weight), self.eps).to(x.dtype)
        return torch.tanh(widened(self.router(normed / x.shape[-1]))).to(x.dtype)


class Laurel(nn.Module):
    """A low-rank branch beside attention: x + norm(W_right W_left x) (Menghani et al. 2024, arXiv 2411.07501)."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        rank = _options(cfg).laurel_rank
        self.left, self.right = nn.Linear(cfg.d_model, rank, bias=False), nn.Linear(rank, cfg.d_model, bias=False)
        self.norm = make_norm(cfg)

    def forward(self, x: Resid) -> Resid:
        return x + self.norm(self.right(self.left(x)))


def equip(block: Block) -> list[str]:
    """Give a block what only this order has; the names of its hooks."""
    block.altup, block.laurel = AltUp(block.cfg), Laurel(block.cfg)
    return ["streams_pre", "laurel_out", "resid_late", "streams_post"]


def altup(block: Block, streams: StreamsOf, context: AttentionContext, cache: KVCache | None) -> StreamsOf:
    """A sandwich block on the active stream; the layer's own embedding of the token goes to every stream but the first."""
    predicted = block.altup.predict(block.hook_streams_pre(streams))
    x, predicted = _hooked(block.hook_resid_pre, predicted, block.altup.active)
    streams = block.altup.correct(predicted, block.hook_resid_late(_computed(block, x, context, cache)))
    if block.cfg.d_layer_embed:
        embedding = block.hook_layer_embed(block.layer_embed.embedding(context))
        out = block.hook_layer_out(block.layer_embed(block.altup.read(streams), embedding))
        streams = torch.cat((streams[:1], streams[1:] + out))
    _, streams = _hooked(block.hook_resid_post, streams, block.altup.active)
    return block.hook_streams_post(streams)


def _computed(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """The active stream after attention, LAuReL and MLP; where the first two meet, it is divided by sqrt(2)."""
    normed = block.ln1(x)
    attn = block.attend(x, context, cache, Shared(block.ln1, normed))
    x = x + block.hook_attn_out(block.scaled(block.ln1_post(attn)))
    x = (x + block.hook_laurel_out(block.laurel(normed))) * 2**-0.5
    if not block.cfg.attn_only:
        x = block.hook_resid_mid(x)
        x = x + block.hook_mlp_out(block.scaled(block.ln2_post(block.mlp(block.ln2(block.hook_mlp_in(x))))))
    return x


def _hooked(point: HookPoint, streams: StreamsOf, active: int) -> tuple[Resid, StreamsOf]:
    """One stream as its hook leaves it, and all streams with it in place."""
    x = point(streams[active])
    return x, torch.cat((streams[:active], x[None], streams[active + 1 :])) if point.is_hooked else streams


def _sized(others: StreamsOf, x: Resid) -> StreamsOf:
    """The others, each token's vector as long as that of x."""
    size = x.pow(2).mean(-1, keepdim=True).sqrt()
    return others * size / others.pow(2).mean(-1, keepdim=True).clamp(min=SMALLEST).sqrt()


def _start(*shape: int) -> Tensor:
    """Random weights of variance 1 / fan-in."""
    return nn.init.normal_(torch.empty(*shape), std=shape[-1] ** -0.5)


def _options(cfg: TransformerConfig) -> Any:
    """`cfg.altup`, which configs with this block order have."""
    return cfg.altup
