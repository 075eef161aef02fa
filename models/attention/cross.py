"""Cross-attention: queries from the decoder's stream, keys and values from the encoder's last states (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from ..cache import KVCache
from ..config import TransformerConfig
from ..errors import InputError
from .attention import Attention, project
from .context import AttentionContext, CrossContext


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
        q = self.hook_q(project(x, self.q, self.cfg.n_heads))
        k, v = self._of_states(cross)
        q, k = self.prepare(q, self.hook_k(k), cross)
        return self.write(self.mix(q, k, self.hook_v(v), cross), x, cross)

    def _of_states(self, cross: CrossContext) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's states, before their hooks, which thus run at each step of decoding."""
        if cross.kept is not None and self.layer in cross.kept:
            return cross.kept[self.layer]
        heads = self.cfg.n_kv_heads
        k, v = project(cross.states, self.k, heads), project(cross.states, self.v, heads)
        if cross.kept is not None:
            cross.kept[self.layer] = k, v
        return k, v
