"""What one forward pass knows about its tokens: slots, positions, padding. Masks and tables are made once for all layers."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..config import RotaryConfig, TransformerConfig
from ..positions.rotary import RotaryTables, rotary_tables
from .masks import visible_keys


class AttentionContext:
    """Shared by all layers of one call.

    positions: token positions for rotation, of every key slot, [batch or 1, key]; padding does not count.
    n_past: key slots already in the cache, so that query i sits in slot n_past + i.
    real: which key slots hold tokens and not padding, [batch, key]; None when all do.
    """

    def __init__(
        self, cfg: TransformerConfig, positions: Int[Tensor, "batch key"], n_past: int, real: Bool[Tensor, "batch key"] | None
    ) -> None:
        self.cfg, self.positions, self.n_past, self.real = cfg, positions, n_past, real
        self.n_keys = positions.shape[1]
        self._masks: dict[str, Tensor | None] = {}
        self._tables: dict[tuple[RotaryConfig, torch.dtype], RotaryTables] = {}

    def mask(self, layer_type: str) -> Bool[Tensor, "batch 1 query key"] | None:
        """Visible keys of each query; None when every query sees every key. A padded query sees none."""
        if layer_type not in self._masks:
            self._masks[layer_type] = None if self._sees_all(layer_type) else self._build_mask(layer_type)
        return self._masks[layer_type]

    def is_plain_causal(self, layer_type: str) -> bool:
        """Whether the mask is just the lower triangle, which fused kernels know without being given it."""
        return self.real is None and self.n_past == 0 and self.cfg.causal and self._within_window(layer_type)

    def _within_window(self, layer_type: str) -> bool:
        return layer_type == "full" or self.n_keys <= (self.cfg.window or 0)

    def _sees_all(self, layer_type: str) -> bool:
        one_query = self.n_keys - self.n_past == 1
        return self.real is None and self._within_window(layer_type) and (one_query or not self.cfg.causal)

    def _build_mask(self, layer_type: str) -> Bool[Tensor, "batch 1 query key"]:
        slots = torch.arange(self.n_keys, device=self.positions.device)
        cfg = self.cfg
        visible = visible_keys(slots[self.n_past :], slots, is_causal=cfg.causal, layer_type=layer_type, window=cfg.window)[None]
        if self.real is not None:
            visible = visible & self.real[:, None, :] & self.real[:, self.n_past :, None]
        return visible[:, None]

    def tables(self, rotary: RotaryConfig, dtype: torch.dtype) -> RotaryTables:
        """Rotary tables of the tokens of this call, which follow those in the cache."""
        if (rotary, dtype) not in self._tables:
            length = int(self.positions.max()) + 1
            self._tables[rotary, dtype] = rotary_tables(rotary, self.cfg.d_head, self.positions[:, self.n_past :], length, dtype)
        return self._tables[rotary, dtype]
