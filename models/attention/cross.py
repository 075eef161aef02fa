"""Cross-attention: queries from the decoder's stream, keys and values from the encoder's last states (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from ..cache import KVCache
from ..config import TransformerConfig
from ..errors import InputError
from .attention import Attention
from .context import AttentionContext


class CrossAttention(Attention):
    """The hooks of attention, with hook_k and hook_v [batch, encoder pos, ...] and patterns over the encoder's positions.

    It has no positions, no causality and no relative bias; padding of the encoder's input gets no weight.
    """

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        plain: dict[str, Any] = {"positions": "none", "rotary": None, "causal": False, "score_terms": (), "temperature": None}
        super().__init__(replace(cfg, mask="full", layer_types=("full",) * cfg.n_layers, **plain), layer)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "batch pos d_model"], context: AttentionContext, cache: KVCache | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        cross = context.cross
        if cross is None:
            raise InputError("cross-attention needs the encoder's states; call the encoder-decoder model, not its decoder.")
        q, k, v = self.project(x, cross.states, cross.states, cross)
        q, k = self.prepare(q, k, cross)
        return self.write(self.mix(q, k, v, cross), x, cross)
