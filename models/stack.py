"""A stack of blocks between an embedding and a head: the whole of a decoder or encoder, half of an encoder-decoder."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from .attention.context import AttentionContext
from .block import ORDERS, Block
from .cache import KVCache
from .config import TransformerConfig
from .embedding import Embedding
from .head import Head
from .hooked import Part


class Stack(nn.Module, Embedding, Head):
    """Embedding, blocks and head of one config, under the names that parameters and hooks have."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.n_layers = cfg.n_layers
        self._make_embedding(cfg)
        several = ORDERS[cfg.block].streams
        self.streams = None if several is None else several(cfg)
        self.blocks = nn.ModuleList(Block(cfg, layer) for layer in range(cfg.n_layers))
        self.share_parameters()
        self._make_head(cfg)

    def share_parameters(self) -> None:
        """Make one parameter of those that all layers share: that of the first layer that has it."""
        first: dict[str, nn.Parameter] = {}
        for block in self.blocks:
            for path, part in block.named_modules():
                for name in part.shared_parameters if isinstance(part, Part) else ():
                    setattr(part, name, first.setdefault(f"{path}.{name}", getattr(part, name)))

    def run_blocks(
        self, x: Float[Tensor, "batch pos d_model"], context: AttentionContext, cache: KVCache | None, layers: range
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after these blocks, from that before the first of them.

        Of models with several streams these are all the blocks or none.
        """
        streams = self.streams if layers else None
        x = x if streams is None else streams.enter(x)
        for layer in layers:
            x = self.blocks[layer](x, context, cache)
        return x if streams is None else streams.leave(x)
