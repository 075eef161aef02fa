"""Latent attention (DeepSeek-AI 2024, arXiv 2405.04434): keys and values made from one small vector per token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..config import LatentConfig, TransformerConfig
from ..errors import ConfigError, HookError
from ..hooks import HookPoint
from ..kernels.latent import expand, join_key, score_parts
from ..norms import widened
from .attention import Attention, Inputs, project
from .context import AttentionContext

Latent = Float[Tensor, "batch pos *head rank"]


class LatentNorm(nn.Module):
    """RMSNorm of a latent, without hooks: `hook_q_latent` and `hook_kv_latent` follow it."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x: Latent) -> Latent:
        return F.rms_norm(widened(x), self.weight.shape, widened(self.weight), self.eps).to(x.dtype)


class LatentAttention(Attention):
    """Attention whose keys and values, and often queries, pass through a latent of few dimensions.

        q_input ─ down, norm ─ hook_q_latent ─ up ─────────────────────────────────── hook_q      (or one matrix, without rank)
        k_input ┬ down, norm ─ hook_kv_latent ┬ up ─ content ─┐
                └ down ─ d_shared dimensions ─┼───────────────┴ one key per head ── hook_k
        v_input ─ (the same latent) ──────────┴ up ───────────────────────────────── hook_v

    The last `latent.d_shared` dimensions of a head's query and key are the ones that are rotated; those of the key are the same
    in all heads until `hook_k`. `hook_score_content` and `hook_score_rotary` are the scaled scores by the other dimensions and
    by these; they add up to the scores before terms, soft-cap and mask, and run only while hooked.
    Latents are shared by all heads. Where an input is split by head there is no such one latent, so they cannot be edited then.
    """

    linear_reads = False

    hook_q_latent: HookPoint
    hook_kv_latent: HookPoint
    hook_score_content: HookPoint
    hook_score_rotary: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        self.latent = _latent_config(cfg)
        super().__init__(cfg, layer)
        self._make_hooks("kv_latent", "score_content", "score_rotary", *(["q_latent"] if self.latent.q_rank else []))

    def _make_projections(self) -> None:
        cfg, latent, bias = self.cfg, self.latent, self.cfg.qkv_bias
        if latent.q_rank:
            self.q_down = nn.Linear(cfg.d_model, latent.q_rank, bias=bias)
            self.q_latent_norm = LatentNorm(latent.q_rank, latent.norm_eps)
        self.q_up = nn.Linear(latent.q_rank or cfg.d_model, cfg.n_heads * cfg.d_head, bias=False)
        self.kv_down = nn.Linear(cfg.d_model, latent.kv_rank + latent.d_shared, bias=bias)
        self.kv_latent_norm = LatentNorm(latent.kv_rank, latent.norm_eps)
        self.kv_up = nn.Linear(latent.kv_rank, cfg.n_heads * (self.d_content + cfg.d_value), bias=False)
        self.o = nn.Linear(cfg.n_heads * cfg.d_value, cfg.d_model, bias=cfg.out_bias)

    @property
    def d_content(self) -> int:
        """Dimensions of a head's query and key that come from the latent and are not rotated."""
        return self.cfg.d_head - self.latent.d_shared

    @property
    def first_rotated(self) -> int:
        """Rotation begins after the content."""
        return self.d_content

    def project(
        self, q_input: Inputs, k_input: Inputs, v_input: Inputs, context: AttentionContext
    ) -> tuple[Tensor, Tensor, Tensor]:
        q = self.expand_queries(self.q_latent(q_input) if self.latent.q_rank else q_input)
        return self.hook_q(q), *self.keys_and_values(k_input, v_input)

    def q_latent(self, x: Inputs) -> Latent:
        """The normed latent of queries."""
        return _shared_by_heads(self.hook_q_latent, self.q_latent_norm(self.q_down(x)), x.dim() == 3)

    def expand_queries(self, x: Latent) -> Float[Tensor, "batch pos head d_head"]:
        """Every head's query from the latent, or from the input where there is none."""
        return project(x, self.q_up, self.cfg.n_heads)

    def keys_and_values(self, k_input: Inputs, v_input: Inputs) -> tuple[Tensor, Tensor]:
        """A key and a value per head, hooked."""
        together = k_input is v_input
        latent, shared = self._compress(k_input, together)
        k = self.hook_k(join_key(expand(latent, self.up_k), shared))
        v_latent = latent if together else self._compress(v_input, False)[0]
        return k, self.hook_v(expand(v_latent, self.up_v))

    def _compress(self, x: Inputs, together: bool) -> tuple[Latent, Float[Tensor, "batch pos *head d_shared"]]:
        latent, shared = self.kv_down(x).split([self.latent.kv_rank, self.latent.d_shared], -1)
        return _shared_by_heads(self.hook_kv_latent, self.kv_latent_norm(latent), together and x.dim() == 3), shared

    def products(self, q: Tensor, k: Tensor) -> Float[Tensor, "batch head query key"]:
        if not self._shows_parts:
            return super().products(q, k)
        content, rotary = score_parts(q, k, self.latent.d_shared, self.cfg.attn_scale)
        return self.hook_score_content(content) + self.hook_score_rotary(rotary)

    @property
    def _shows_parts(self) -> bool:
        return self.hook_score_content.is_hooked or self.hook_score_rotary.is_hooked

    @property
    def _can_fuse(self) -> bool:
        return super()._can_fuse and not self._shows_parts

    @property
    def up_k(self) -> Float[Tensor, "head rank d_content"]:
        """A view: latent @ up_k[h] is the content of head h's key."""
        return self._up()[:, : self.d_content].transpose(1, 2)

    @property
    def up_v(self) -> Float[Tensor, "head rank d_value"]:
        """A view: latent @ up_v[h] is head h's value."""
        return self._up()[:, self.d_content :].transpose(1, 2)

    def _up(self) -> Float[Tensor, "head content_and_value rank"]:
        return self.kv_up.weight.unflatten(0, (self.cfg.n_heads, -1))

    def _down(self, linear: nn.Linear, norm: LatentNorm) -> Float[Tensor, "d_model rank"]:
        """What leads into a latent, with the gain of its norm."""
        return linear.weight[: len(norm.weight)].T * norm.weight

    @property
    def W_Q(self) -> Float[Tensor, "head d_model d_head"]:
        """Query weights through the latent. x @ W_Q[h] is head h's query times the RMS of the latent before its norm.

        Without a rank of queries it is the query itself.
        """
        up = self.q_up.weight.unflatten(0, (self.cfg.n_heads, -1)).transpose(1, 2)
        return self._down(self.q_down, self.q_latent_norm) @ up if self.latent.q_rank else up

    @property
    def W_K(self) -> Float[Tensor, "head d_model d_head"]:
        """Key weights. The content dimensions go through the latent: x @ W_K[h] there is the key times the latent's RMS."""
        content = self._down(self.kv_down, self.kv_latent_norm) @ self.up_k
        shared = self.kv_down.weight[self.latent.kv_rank :].T.expand(self.cfg.n_heads, -1, -1)
        return torch.cat((content, shared), -1)

    @property
    def W_V(self) -> Float[Tensor, "head d_model d_value"]:
        """Value weights through the latent: x @ W_V[h] is head h's value times the RMS of the latent before its norm."""
        return self._down(self.kv_down, self.kv_latent_norm) @ self.up_v

    @property
    def b_Q(self) -> None:
        """None: a bias before the norm of a latent is no bias of the query. b_K and b_V likewise."""
        return None

    b_K = b_V = b_Q


def _shared_by_heads(point: HookPoint, latent: Latent, is_shared: bool) -> Latent:
    """The latent, hooked where it is one for all heads. Raises HookError where it is edited and is not."""
    if is_shared:
        return point(latent)
    if point.is_edited:
        raise HookError(f"'{point.name}' cannot be edited in one run with a split input of its layer: each head has its own.")
    return latent


def _latent_config(cfg: TransformerConfig) -> LatentConfig:
    """`cfg.latent`. Raises ConfigError where it does not fit the rest."""
    latent = cfg.latent
    if latent is None:
        raise ConfigError(f"mixer={cfg.mixer!r} needs latent, a LatentConfig.")
    if not latent.d_shared < cfg.d_head:
        raise ConfigError(f"latent.d_shared must be less than d_head={cfg.d_head}, got {latent.d_shared}.")
    if cfg.n_kv_heads != cfg.n_heads:
        raise ConfigError(f"latent attention needs n_kv_heads=n_heads={cfg.n_heads}, got n_kv_heads={cfg.n_kv_heads}.")
    if cfg.d_rotary not in (0, latent.d_shared):
        raise ConfigError(f"rotary.dim must be latent.d_shared={latent.d_shared} in latent attention, got {cfg.d_rotary}.")
    return latent
