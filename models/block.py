"""One block: how attention and MLP read the residual stream and write to it, in four orders.

    pre       x + attn(ln1(x)),              then  x + mlp(ln2(x))               GPT-2, Llama
    sandwich  x + ln1_post(attn(ln1(x))),    then  x + ln2_post(mlp(ln2(x)))     Gemma 2 and 3
    parallel  x + attn(ln1(x)) + mlp(ln2(x))                                     GPT-NeoX, Pythia
    post      ln1(x + attn(x)),              then  ln2(x + mlp(x))               the original Transformer

`hook_attn_out` and `hook_mlp_out` are what is added to the stream; `hook_resid_mid` and `hook_resid_post` are the sums.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from .attention.context import AttentionContext
from .attention.softmax import Attention
from .cache import KVCache
from .config import TransformerConfig
from .errors import HookError
from .hooks import HookPoint
from .mlp import make_mlp
from .norms import NoNorm, Norm, make_norm

Resid = Float[Tensor, "batch pos d_model"]


class Block(nn.Module):
    """One layer of the model. Which norms and hooks it has depends on `cfg.block` and on whether there is an MLP."""

    hook_resid_pre: HookPoint
    hook_q_input: HookPoint
    hook_k_input: HookPoint
    hook_v_input: HookPoint
    hook_attn_out: HookPoint
    hook_resid_mid: HookPoint
    hook_mlp_in: HookPoint
    hook_mlp_out: HookPoint
    hook_resid_post: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg, self.order = cfg, ORDERS[cfg.block]
        self.attn = Attention(cfg, layer)
        self.ln1 = make_norm(cfg.norm, cfg.d_model, cfg.norm_eps)
        if cfg.block == "sandwich":
            self.ln1_post = make_norm(cfg.norm, cfg.d_model, cfg.norm_eps)
        names = ["resid_pre", "q_input", "k_input", "v_input", "attn_out", "resid_post"]
        if not cfg.attn_only:
            self.ln2 = make_norm(cfg.norm, cfg.d_model, cfg.norm_eps)
            self.mlp = make_mlp(cfg)
            if cfg.block == "sandwich":
                self.ln2_post = make_norm(cfg.norm, cfg.d_model, cfg.norm_eps)
            names += ["mlp_in", "mlp_out"] + ([] if cfg.block == "parallel" else ["resid_mid"])
        for name in names:
            setattr(self, f"hook_{name}", HookPoint(f"hook_{name}"))

    def forward(self, x: Resid, context: AttentionContext, cache: KVCache | None = None) -> Resid:
        return self.order(self, x, context, cache)

    def attend(self, x: Resid, context: AttentionContext, cache: KVCache | None, norm: Norm | NoNorm) -> Resid:
        """Attention on the normed stream. A hooked q, k or v input is copied per head first, so each head can read its own."""
        split = {name: point for name in "qkv" if (point := getattr(self, f"hook_{name}_input")).is_hooked}
        live = {name for name, point in split.items() if point.is_in_graph}
        inputs = dict.fromkeys("qkv", norm(x) if len(live) < 3 or norm.is_hooked else x)
        for name, point in split.items():
            if name in live and norm.is_in_graph:
                raise HookError(
                    f"'{point.name}' and the hooks of its norm cannot both be edited, or followed by gradients, in one run."
                )
            heads = self.cfg.n_heads if name == "q" else self.cfg.n_kv_heads
            by_head = point(x[:, :, None].expand(-1, -1, heads, -1))
            if name in live:
                inputs[name] = norm.plain(by_head)
        return self.attn(inputs["q"], inputs["k"], inputs["v"], context, cache)


def pre_norm(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Xiong et al. 2020 (arXiv 2002.04745)."""
    x = block.hook_resid_pre(x)
    x = x + block.hook_attn_out(block.attend(x, context, cache, block.ln1))
    if not block.cfg.attn_only:
        x = block.hook_resid_mid(x)
        x = x + block.hook_mlp_out(block.mlp(block.ln2(block.hook_mlp_in(x))))
    return block.hook_resid_post(x)


def sandwich_norm(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Ding et al. 2021 (CogView, arXiv 2105.13290)."""
    x = block.hook_resid_pre(x)
    x = x + block.hook_attn_out(block.ln1_post(block.attend(x, context, cache, block.ln1)))
    if not block.cfg.attn_only:
        x = block.hook_resid_mid(x)
        x = x + block.hook_mlp_out(block.ln2_post(block.mlp(block.ln2(block.hook_mlp_in(x)))))
    return block.hook_resid_post(x)


def parallel(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Wang & Komatsuzaki 2021 (GPT-J): attention and MLP read the same stream, so there is no `hook_resid_mid`."""
    x = block.hook_resid_pre(x)
    out = x + block.hook_attn_out(block.attend(x, context, cache, block.ln1))
    if not block.cfg.attn_only:
        out = out + block.hook_mlp_out(block.mlp(block.ln2(block.hook_mlp_in(x))))
    return block.hook_resid_post(out)


def post_norm(block: Block, x: Resid, context: AttentionContext, cache: KVCache | None) -> Resid:
    """Vaswani et al. 2017 (arXiv 1706.03762): the stream itself is normed after each addition."""
    x = block.hook_resid_pre(x)
    x = x + block.hook_attn_out(block.attend(x, context, cache, NO_NORM))
    if block.cfg.attn_only:
        return block.ln1(block.hook_resid_post(x))
    x = block.ln1(block.hook_resid_mid(x))
    x = x + block.hook_mlp_out(block.mlp(block.hook_mlp_in(x)))
    return block.ln2(block.hook_resid_post(x))


NO_NORM = NoNorm()

ORDERS: dict[str, Callable[[Block, Resid, AttentionContext, KVCache | None], Resid]] = {
    "pre": pre_norm,
    "sandwich": sandwich_norm,
    "parallel": parallel,
    "post": post_norm,
}
