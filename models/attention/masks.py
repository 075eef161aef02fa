"""Which keys a query may see. A mask is a function of a `MaskView`; True means keep. Padding comes on top (`context`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..config import TransformerConfig
from ..errors import ConfigError
from .sparse_masks import big_bird, longformer

if TYPE_CHECKING:
    from .context import AttentionContext

Visible = Bool[Tensor, "#batch #head query key"]


@dataclass(frozen=True)
class MaskView:
    """What a mask can depend on. Slots count padding, positions do not; query and key sit in slots of the same sequence."""

    cfg: TransformerConfig
    context: AttentionContext
    queries: Int[Tensor, " query"]
    keys: Int[Tensor, " key"]

    @property
    def distance(self) -> Int[Tensor, "query key"]:
        """Slots from key to query, positive where the key comes first."""
        return self.queries[:, None] - self.keys[None, :]

    @property
    def in_order(self) -> Bool[Tensor, "query key"]:
        """What causality alone allows."""
        return self.distance >= 0 if self.cfg.causal else self.distance == self.distance


def full(view: MaskView) -> Visible:
    """Every key, or in a causal model every earlier one and the query itself."""
    return view.in_order[None, None]


def sliding(view: MaskView) -> Visible:
    """The last `window` keys, the query itself included; to both sides where nothing is causal (Beltagy et al. 2020)."""
    return (view.in_order & (view.distance.abs() < (view.cfg.window or 0)))[None, None]


def chunked(view: MaskView) -> Visible:
    """Keys of the query's own chunk: tokens whose positions, divided by `cfg.chunk`, have the same whole part (Llama 4)."""
    chunks = view.context.positions // (view.cfg.chunk or 1)
    return view.in_order & (chunks[:, None, view.queries, None] == chunks[:, None, None, view.keys])


def sink_window(view: MaskView) -> Visible:
    """The last `window` keys and the text's first `sparse.n_sinks` tokens (StreamingLLM; Xiao et al. 2023, arXiv 2309.17453)."""
    n_sinks = view.cfg.sparse.n_sinks if view.cfg.sparse else 0
    is_sink = view.context.positions[:, None, None, :] < n_sinks
    return view.in_order & (is_sink | (view.distance.abs() < (view.cfg.window or 0)))


MASKS: dict[str, Callable[[MaskView], Visible]] = {
    "full": full,
    "sliding": sliding,
    "sink_window": sink_window,
    "chunked": chunked,
    "longformer": longformer,
    "big_bird": big_bird,
}
"""By the name that `cfg.mask`, or a layer's type, gives."""


def checked_mask(name: str, visible: Any) -> Visible:
    """What a mask returned. Raises ConfigError, naming the mask, where that is no bool tensor with four axes."""
    if not isinstance(visible, Tensor) or visible.dtype != torch.bool or visible.dim() != 4:
        got = f"{visible.dtype} of shape {tuple(visible.shape)}" if isinstance(visible, Tensor) else type(visible).__name__
        raise ConfigError(f"mask {name!r} must return a bool tensor [batch or 1, head or 1, query, key], got {got}.")
    return visible
