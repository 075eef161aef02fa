"""Tokens to the residual stream before the first block: token, position and token-type embeddings, and their norm."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .config import TransformerConfig
from .hooks import HookPoint
from .layer_embedding import LayerEmbeddings
from .norms import make_norm
from .positions.sinusoidal import sinusoidal_positions


def _none(model: Embedding, positions: Tensor) -> Tensor | None:
    return None


def _learned(model: Embedding, positions: Tensor) -> Tensor:
    return model.pos_embed(positions + model.cfg.position_offset)


def _sinusoidal(model: Embedding, positions: Tensor) -> Tensor:
    cfg = model.cfg
    return sinusoidal_positions(positions + cfg.position_offset, cfg.d_model, cfg.sinusoidal_layout, model.embed.weight.dtype)


POSITION_EMBEDDINGS = {"learned": _learned, "sinusoidal": _sinusoidal, "rotary": _none, "none": _none}
"""By `cfg.positions`: what is added to the token embeddings at positions [batch, pos]; None where nothing is."""


class Embedding:
    """The embedding part of a model, as a mixin of modules with a `cfg`."""

    cfg: TransformerConfig

    def _make_embedding(self, cfg: TransformerConfig) -> None:
        self.embed = nn.Embedding(cfg.d_vocab, cfg.d_model)
        self.hook_embed = HookPoint("hook_embed")
        if cfg.positions == "learned":
            self.pos_embed = nn.Embedding(cfg.n_ctx + cfg.position_offset, cfg.d_model)
        if cfg.positions in ("learned", "sinusoidal"):
            self.hook_pos_embed = HookPoint("hook_pos_embed")
        if cfg.n_token_types:
            self.token_type_embed = nn.Embedding(cfg.n_token_types, cfg.d_model)
            self.hook_token_type_embed = HookPoint("hook_token_type_embed")
        if cfg.d_layer_embed:
            self.layer_embeddings = LayerEmbeddings(cfg)
        if cfg.embed_norm:
            self.embed_norm = make_norm(cfg)

    def embed_tokens(
        self,
        tokens: Int[Tensor, "batch pos"],
        positions: Int[Tensor, "#batch pos"],
        token_types: Int[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream before the first block. token_types: None means 0 for all."""
        cfg = self.cfg
        x = self.embed(tokens)
        if cfg.embed_scale != 1.0:
            # Gemma rounds its scale to the dtype of the weights.
            x = x * torch.tensor(cfg.embed_scale, dtype=x.dtype, device=x.device)
        x = self.hook_embed(x)
        added = POSITION_EMBEDDINGS[cfg.positions](self, positions)
        if added is not None:
            x = x + self.hook_pos_embed(added.expand(x.shape[0], -1, -1))
        if cfg.n_token_types:
            types = torch.zeros_like(tokens) if token_types is None else token_types
            x = x + self.hook_token_type_embed(self.token_type_embed(types))
        return self.embed_norm(x) if cfg.embed_norm else x
