"""A stack of blocks between an embedding and a head: the whole of a decoder or encoder, half of an encoder-decoder."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from .attention.context import AttentionContext
from .block import Block
from .cache import KVCache
from .config import TransformerConfig
from .embedding import Embedding
from .head import Head


class Stack(nn.Module, Embedding, Head):
    """Embedding, blocks and head of one config, under the names that parameters and hooks have."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.n_layers = cfg.n_layers
        self._make_embedding(cfg)
        self.blocks = nn.ModuleList(Block(cfg, layer) for layer in range(cfg.n_layers))
        self._make_head(cfg)

    def run_blocks(
        self, x: Float[Tensor, "batch pos d_model"], context: AttentionContext, cache: KVCache | None, layers: range
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after these blocks, from that before the first of them."""
        for layer in layers:
            x = self.blocks[layer](x, context, cache)
        return x
