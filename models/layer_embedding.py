"""Token embeddings of each layer's own, narrow and added through a gate (Gemma 3n and Gemma 4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .attention.context import AttentionContext
from .config import TransformerConfig
from .errors import InputError
from .mlp import ACTIVATION_FUNCTIONS
from .norms import make_norm, widened

SHARED = "layer_embeddings"
"""Where a call's context has them."""


class LayerEmbeddings(nn.Module):
    """For every token and layer: a row of a table, and a projection of the token's ordinary embedding, averaged.

    Averaged so that the variance of one is kept: (row * sqrt(width) + norm(projection)) / sqrt(2).
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.cfg, width = cfg, cfg.n_layers * cfg.d_layer_embed
        self.table = nn.Embedding(cfg.d_layer_vocab or cfg.d_vocab, width)
        self.proj = nn.Linear(cfg.d_model, width, bias=False)
        self.norm_weight = nn.Parameter(torch.ones(cfg.d_layer_embed))

    def forward(
        self, tokens: Int[Tensor, "batch pos"], x: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos layer d_layer_embed"]:
        """x: the tokens' embeddings, as they enter the residual stream."""
        cfg, width = self.cfg, self.cfg.d_layer_embed
        projected = widened((self.proj(x) * cfg.d_model**-0.5).unflatten(-1, (cfg.n_layers, width)))
        projected = F.rms_norm(projected, (width,), widened(self.norm_weight), cfg.norm_eps).to(x.dtype)
        rows = self.table(tokens.where(tokens < len(self.table.weight), 0))
        rows = rows * torch.tensor(width**0.5, dtype=x.dtype, device=x.device)
        return (projected + rows.unflatten(-1, (cfg.n_layers, width))) * 2**-0.5


class LayerEmbeddingRead(nn.Module):
    """What one block adds of its layer's embedding e: norm(W_out (act(W_gate x) * e))."""

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.activation = layer, ACTIVATION_FUNCTIONS[cfg.activation]
        self.gate = nn.Linear(cfg.d_model, cfg.d_layer_embed, bias=False)
        self.out = nn.Linear(cfg.d_layer_embed, cfg.d_model, bias=False)
        self.norm = make_norm(cfg)

    def embedding(self, context: AttentionContext) -> Float[Tensor, "batch pos d_layer_embed"]:
        """This layer's. Raises InputError in a call that was given no tokens."""
        if SHARED not in context.shared:
            raise InputError(
                "this model's blocks read embeddings of tokens, which a residual stream does not hold; leave out start_at_layer."
            )
        return context.shared[SHARED][:, :, self.layer]

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], embedding: Float[Tensor, "batch pos d_layer_embed"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return self.norm(self.out(self.activation(self.gate(x)) * embedding))
