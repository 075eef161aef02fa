"""What one forward pass knows about its tokens: slots, positions, padding. Masks and tables are made once for all layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..config import RotaryConfig, TransformerConfig
from ..positions.rotary import RotaryTables, rotary_tables
from .masks import MASKS, MaskView, checked_mask


@dataclass(frozen=True)
class TokenInfo:
    """What a caller may say about tokens beside their ids and padding.

    token_types: segment of each token, for models with such embeddings. documents: tokens see their own document only, and
    positions start again in each. prefix: how many leading tokens of each row see each other in both directions. visible: takes
    the place of every layer's own mask. global_tokens: tokens that see, and are seen by, all (Longformer).
    """

    token_types: Int[Tensor, "batch pos"] | None = None
    documents: Int[Tensor, "batch pos"] | None = None
    prefix: Int[Tensor, " batch"] | None = None
    visible: Bool[Tensor, "#batch #head pos pos"] | None = None
    global_tokens: Bool[Tensor, "batch pos"] | None = None

    @property
    def changes_masks(self) -> bool:
        return any(each is not None for each in (self.documents, self.prefix, self.visible))


class AttentionContext:
    """Shared by all layers of one call.

    positions: token positions, of every key slot, [batch or 1, key]; padding does not count.
    n_past: key slots already in the cache, so that query i sits in slot n_past + i.
    real: which key slots hold tokens and not padding, [batch, key]; None when all do.
    shared: what layers hand on to later ones, such as keys and values that these read too.
    cross: the encoder's states, in the decoder of an encoder-decoder.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        positions: Int[Tensor, "batch key"],
        n_past: int,
        real: Bool[Tensor, "batch key"] | None,
        info: TokenInfo | None = None,
    ) -> None:
        self.cfg, self.positions, self.n_past, self.real = cfg, positions, n_past, real
        self.info = info or TokenInfo()
        self.n_keys = positions.shape[1]
        self.shared: dict[Any, Any] = {}
        self.cross: CrossContext | None = None
        self._masks: dict[TransformerConfig, Tensor | None] = {}
        self._tables: dict[Any, RotaryTables] = {}

    @property
    def query_positions(self) -> Int[Tensor, "batch query"]:
        """Token positions of this call's tokens, which follow those in the cache."""
        return self.positions[:, self.n_past :]

    def mask(self, cfg: TransformerConfig) -> Bool[Tensor, "#batch #head query key"] | None:
        """Visible keys of each query in layers with this config; None where all see all. A padded query sees none."""
        if cfg not in self._masks:
            self._masks[cfg] = None if self._sees_all(cfg) else self._build_mask(cfg)
        return self._masks[cfg]

    def is_plain_causal(self, cfg: TransformerConfig) -> bool:
        """Whether the mask is just the lower triangle, which fused kernels know without being given it."""
        return self.real is None and self.n_past == 0 and cfg.causal and self._is_unbounded(cfg)

    def _is_unbounded(self, cfg: TransformerConfig) -> bool:
        reach = {"full": self.n_keys, "sliding": cfg.window, "chunked": cfg.chunk}.get(cfg.mask)
        within = self.n_keys <= (reach or 0)
        return within and not self.info.changes_masks

    def _sees_all(self, cfg: TransformerConfig) -> bool:
        one_query = self.n_keys - self.n_past == 1
        return self.real is None and self._is_unbounded(cfg) and (one_query or not cfg.causal)

    def _build_mask(self, cfg: TransformerConfig) -> Bool[Tensor, "#batch #head query key"]:
        info = self.info
        if info.visible is not None:
            visible = info.visible
        else:
            slots = torch.arange(self.n_keys, device=self.positions.device)
            visible = checked_mask(cfg.mask, MASKS[cfg.mask](MaskView(cfg, self, slots[self.n_past :], slots)))
            if info.prefix is not None:
                visible = visible | self._both_in_prefix(slots, info.prefix)
            if info.documents is not None:
                visible = visible & (info.documents[:, None, :, None] == info.documents[:, None, None, :])
        if self.real is not None:
            visible = visible & self.real[:, None, None, :] & self.real[:, None, self.n_past :, None]
        return visible

    def _both_in_prefix(self, slots: Tensor, prefix: Int[Tensor, " batch"]) -> Bool[Tensor, "batch 1 query key"]:
        """The prefix counts real tokens."""
        inside = self.positions < prefix[:, None]
        return inside[:, None, self.n_past :, None] & inside[:, None, None, :]

    def tables(self, rotary: RotaryConfig, width: int, dtype: torch.dtype) -> RotaryTables:
        """Rotary tables for heads of `width` dimensions, at the positions of this call's tokens."""
        key = (rotary, width, dtype)
        if key not in self._tables:
            length = int(self.positions.max()) + 1
            self._tables[key] = rotary_tables(rotary, width, self.query_positions, length, dtype)
        return self._tables[key]


class CrossContext(AttentionContext):
    """What cross-attention knows of the encoder's states [batch, key, d_model]: every query sees every real key.

    n_queries: tokens of the decoder's current call.
    kept: each layer's keys and values of these states, once a cache has asked for them to be kept; None without a cache.
    """

    def __init__(self, cfg: TransformerConfig, states: Tensor, real: Bool[Tensor, "batch key"] | None) -> None:
        super().__init__(cfg, torch.arange(states.shape[1], device=states.device).expand(len(states), -1), 0, real)
        self.states, self.n_queries = states, 0
        self.kept: dict[int, tuple[Tensor, Tensor]] | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the states, and of the keys and values kept."""
        kept = [self.states, *(tensor for pair in (self.kept or {}).values() for tensor in pair)]
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def mask(self, cfg: TransformerConfig) -> Bool[Tensor, "batch 1 query key"] | None:
        """Padding of the encoder's input gets no weight."""
        return None if self.real is None else self.real[:, None, None, :].expand(-1, 1, self.n_queries, -1)

    def is_plain_causal(self, cfg: TransformerConfig) -> bool:
        return False
