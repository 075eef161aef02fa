"""One block: how attention and MLP read the residual stream and write to it, in nine orders.

    pre               x + attn(ln1(x)),              then  x + mlp(ln2(x))               GPT-2, Llama
    sandwich          x + ln1_post(attn(ln1(x))),    then  x + ln2_post(mlp(ln2(x)))     Gemma 2 and 3
    sandwich_scaled   the same, then  (x + layer_embed(x)) * scalar                      Gemma 4
    output_norm       x + ln1_post(attn(x)),         then  x + ln2_post(mlp(x))          OLMo 2
    parallel          x + attn(ln1(x)) + mlp(ln2(x))                                     GPT-NeoX, Pythia
    parallel_shared   x + attn(ln1(x)) + mlp(ln1(x))                                     GPT-J, Cohere
    post              ln1(x + attn(x)),              then  ln2(x + mlp(x))               the original Transformer
    normed_stream     y = ln1(x); y + attn(y),       then  y = ln2(x); y + mlp(y)        MiniMax-01
    altup             several streams, one of which is computed on; see `models.altup`   Gemma 3n

Where a block has cross-attention, it comes between the two, with a norm `ln_cross` placed as the others are.
`hook_attn_out` and `hook_mlp_out` are what is added to the stream; `hook_resid_mid` and `hook_resid_post` are the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .altup import AltUp, Laurel, Streams, altup, equip
from .attention.attention import Attention
from .attention.context import AttentionContext
from .attention.cross import CrossAttention
from .attention.mixers import MIXERS
from .cache import KVCache
from .config import TransformerConfig
from .errors import HookError
from .hooks import HookPoint
from .layer_embedding import LayerEmbeddingRead
from .mlps import MLPS
from .norms import NoNorm, Norm, Shared, make_norm

Resid = Float[Tensor, "batch pos d_model"]
State = Float[Tensor, "*stream batch pos d_model"]
"""What blocks hand on: the residual stream, or several side by side in orders that have them."""


class Block(nn.Module):
    """One layer of the model. Which norms and hooks it has depends on its order, its mixer, and on whether there is an MLP."""

    hook_resid_pre: HookPoint
    hook_q_input: HookPoint
    hook_k_input: HookPoint
    hook_v_input: HookPoint
    hook_mixer_in: HookPoint
    hook_attn_out: HookPoint
    hook_resid_cross: HookPoint
    hook_cross_attn_out: HookPoint
    hook_resid_mid: HookPoint
    hook_mlp_in: HookPoint
    hook_mlp_out: HookPoint
    hook_resid_late: HookPoint
    hook_layer_embed: HookPoint
    hook_layer_out: HookPoint
    hook_resid_post: HookPoint
    hook_streams_pre: HookPoint
    hook_laurel_out: HookPoint
    hook_streams_post: HookPoint
    scalar: nn.Parameter
    altup: AltUp
    laurel: Laurel
    ln1: Norm | NoNorm
    ln1_post: Norm | NoNorm
    ln2: Norm | NoNorm
    ln2_post: Norm | NoNorm

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        cfg = cfg.for_layer(layer)
        self.cfg, self.order = cfg, ORDERS[cfg.block]
        self.attn: Attention = MIXERS[cfg.mixer](cfg, layer)  # type: ignore[assignment]
        for name in self.order.norms:
            if name.startswith("ln1") or not cfg.attn_only:
                setattr(self, name, make_norm(cfg) if cfg.attn_norm or name != "ln1" else NoNorm())
        names = ["resid_pre", *(f"{reader}_input" for reader in self.attn.readers), "attn_out", "resid_post"]
        if not self.attn.readers:
            names += ["mixer_in"]
        if cfg.cross_attention:
            self.cross_attn, self.ln_cross = CrossAttention(cfg, layer), make_norm(cfg)
            names += ["resid_cross", "cross_attn_out"]
        if not cfg.attn_only:
            self.mlp = MLPS[cfg.mlp](cfg)
            names += ["mlp_in", "mlp_out"] + ([] if self.order.parallel else ["resid_mid"])
        if cfg.d_layer_embed:
            self.layer_embed = LayerEmbeddingRead(cfg, layer)
            names += ["resid_late", "layer_embed", "layer_out"]
        if self.order.equip is not None:
            names += self.order.equip(self)
        for name in names:
            setattr(self, f"hook_{name}", HookPoint(f"hook_{name}"))

    def forward(self, x: State, context: AttentionContext, cache: KVCache | None = None) -> State:
        return self.order.flow(self, x, context, cache)

    def attend(self, x: Resid, context: AttentionContext, cache: KVCache | None, norm: Norm | NoNorm | Shared) -> Resid:
        """Attention on the normed stream. A hooked q, k or v input is copied per head first, so each head can read its own."""
        readers = self.attn.readers
        if not readers:
            normed = norm(self.hook_mixer_in(x))
            return self.attn(normed, normed, normed, context, cache)
        split = {name: point for name in readers if (point := getattr(self, f"hook_{name}_input")).is_hooked}
        live = {name for name, point in split.items() if point.is_in_graph}
        inputs = dict.fromkeys("qkv", norm(x) if len(live) < len(readers) or norm.is_hooked else x)
        for name, point in split.items():
            if name in live and norm.is_in_graph:
                raise HookError(
                    f"'{point.name}' and the hooks of its norm cannot both be edited, or followed by gradients, in one run."
                )
            by_head = point(x[:, :, None].expand(-1, -1, readers[name], -1))
            if name in live:
                inputs[name] = norm.plain(by_head)
        return self.attn(inputs["q"], inputs["k"], inputs["v"], context, cache)

    def scaled(self, out: Resid) -> Resid:
        """What a sublayer adds to the stream, `cfg.residual_scale` applied."""
        return out if self.cfg.residual_scale == 1.0 else out * self.cfg.residual_scale


Flow = Callable[[Block, State, AttentionContext, KVCache | None], State]


@dataclass(frozen=True)
class BlockOrder:
    """How a block computes, and the facts about it that analyses need.

    norms: the norms it has. before, behind: whether a norm (ln1, ln2) stands between the stream and what attention and MLP read,
    and another (ln1_post, ln2_post) between what they compute and the stream. rescales: whether norms act on the stream itself,
    after each addition or, if norms_first, before each reading.
    parallel: whether attention and MLP read the same stream.
    equip: gives a block the modules that only this order has, and returns the names of their hooks.
    streams: makes the module that turns the one stream into several before the first block, and back after the last.
    """

    flow: Flow
    norms: tuple[str, ...]
    before: bool = True
    behind: bool = False
    rescales: bool = False
    norms_first: bool = False
    parallel: bool = False
    equip: Callable[[Block], list[str]] | None = None
    streams: Callable[[TransformerConfig], Streams] | None = None


def pre_norm(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Xiong et al. 2020 (arXiv 2002.04745)."""
    x = block.hook_resid_pre(x)
    x = x + block.hook_attn_out(block.scaled(block.attend(x, context, cache, block.ln1)))
    if block.cfg.cross_attention:
        x = block.hook_resid_cross(x)
        x = x + block.hook_cross_attn_out(block.cross_attn(block.ln_cross(x), context, cache))
    if not block.cfg.attn_only:
        x = block.hook_resid_mid(x)
        x = x + block.hook_mlp_out(block.scaled(block.mlp(block.ln2(block.hook_mlp_in(x)))))
    return block.hook_resid_post(x)


def sandwich_norm(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Ding et al. 2021 (CogView, arXiv 2105.13290)."""
    return block.hook_resid_post(_sandwiched(block, x, context, cache))


def _equip_scalar(block: Block) -> list[str]:
    """Give a block the factor of its stream; it has no hooks of its own."""
    block.scalar = nn.Parameter(torch.ones(1))
    return []


def sandwich_scaled(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Gemma 4: the layer's own embedding of the token comes third, where there is one; the whole stream is scaled at the end."""
    x = _sandwiched(block, x, context, cache)
    if block.cfg.d_layer_embed:
        x = block.hook_resid_late(x)
        embedding = block.hook_layer_embed(block.layer_embed.embedding(context))
        x = x + block.hook_layer_out(block.layer_embed(x, embedding))
    return block.hook_resid_post(x * block.scalar)


def _sandwiched(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    x = block.hook_resid_pre(x)
    x = x + block.hook_attn_out(block.scaled(block.ln1_post(block.attend(x, context, cache, block.ln1))))
    if not block.cfg.attn_only:
        x = block.hook_resid_mid(x)
        x = x + block.hook_mlp_out(block.scaled(block.ln2_post(block.mlp(block.ln2(block.hook_mlp_in(x))))))
    return x


def output_norm(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """OLMo 2 (arXiv 2501.00656): norms on what is written, none on what is read."""
    x = block.hook_resid_pre(x)
    x = x + block.hook_attn_out(block.scaled(block.ln1_post(block.attend(x, context, cache, NO_NORM))))
    if not block.cfg.attn_only:
        x = block.hook_resid_mid(x)
        x = x + block.hook_mlp_out(block.scaled(block.ln2_post(block.mlp(block.hook_mlp_in(x)))))
    return block.hook_resid_post(x)


def parallel(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Black et al. 2022 (arXiv 2204.06745): attention and MLP read the same stream, so there is no `hook_resid_mid`."""
    x = block.hook_resid_pre(x)
    out = x + block.hook_attn_out(block.scaled(block.attend(x, context, cache, block.ln1)))
    if not block.cfg.attn_only:
        out = out + block.hook_mlp_out(block.scaled(block.mlp(block.ln2(block.hook_mlp_in(x)))))
    return block.hook_resid_post(out)


def parallel_shared(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Wang & Komatsuzaki 2021 (GPT-J): one norm serves both. The hooks of ln1 see attention's reading of the stream only once."""
    x = block.hook_resid_pre(x)
    normed = block.ln1(x)
    out = x + block.hook_attn_out(block.scaled(block.attend(x, context, cache, Shared(block.ln1, normed))))
    if not block.cfg.attn_only:
        read = block.hook_mlp_in(x)
        if block.hook_mlp_in.is_in_graph:
            if block.ln1.is_in_graph:
                raise HookError(
                    f"'{block.hook_mlp_in.name}' and the hooks of ln1 cannot both be edited, or followed by gradients, in one "
                    "run."
                )
            normed = block.ln1.plain(read)
        out = out + block.hook_mlp_out(block.scaled(block.mlp(normed)))
    return block.hook_resid_post(out)


def post_norm(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Vaswani et al. 2017 (arXiv 1706.03762): the stream itself is normed after each addition."""
    x = block.hook_resid_pre(x)
    x = x + block.hook_attn_out(block.scaled(block.attend(x, context, cache, NO_NORM)))
    if block.cfg.attn_only:
        return block.ln1(block.hook_resid_post(x))
    if block.cfg.cross_attention:
        x = block.ln1(block.hook_resid_cross(x))
        x = x + block.hook_cross_attn_out(block.cross_attn(x, context, cache))
        x = block.ln_cross(block.hook_resid_mid(x))
    else:
        x = block.ln1(block.hook_resid_mid(x))
    x = x + block.hook_mlp_out(block.scaled(block.mlp(block.hook_mlp_in(x))))
    return block.ln2(block.hook_resid_post(x))


def normed_stream(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """MiniMax-01 (arXiv 2501.08313): the stream itself is normed before it is read, and scaled before each addition."""
    cfg = block.cfg
    x = block.ln1(block.hook_resid_pre(x))
    x = cfg.attn_stream_scale * x + block.hook_attn_out(block.scaled(block.attend(x, context, cache, NO_NORM)))
    if not cfg.attn_only:
        x = block.ln2(block.hook_resid_mid(x))
        x = cfg.mlp_stream_scale * x + block.hook_mlp_out(block.scaled(block.mlp(block.hook_mlp_in(x))))
    return block.hook_resid_post(x)


NO_NORM = NoNorm()

ORDERS: dict[str, BlockOrder] = {
    "pre": BlockOrder(pre_norm, ("ln1", "ln2")),
    "sandwich": BlockOrder(sandwich_norm, ("ln1", "ln1_post", "ln2", "ln2_post"), behind=True),
    "sandwich_scaled": BlockOrder(sandwich_scaled, ("ln1", "ln1_post", "ln2", "ln2_post"), behind=True, equip=_equip_scalar),
    "output_norm": BlockOrder(output_norm, ("ln1_post", "ln2_post"), before=False, behind=True),
    "parallel": BlockOrder(parallel, ("ln1", "ln2"), parallel=True),
    "parallel_shared": BlockOrder(parallel_shared, ("ln1",), parallel=True),
    "post": BlockOrder(post_norm, ("ln1", "ln2"), before=False, rescales=True),
    "normed_stream": BlockOrder(normed_stream, ("ln1", "ln2"), before=False, rescales=True, norms_first=True),
    "altup": BlockOrder(altup, ("ln1", "ln1_post", "ln2", "ln2_post"), behind=True, equip=equip, streams=Streams),
}
"""By the name that `cfg.block` gives."""
