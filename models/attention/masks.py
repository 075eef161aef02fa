"""Which keys a query may see. A mask is a function of the distance query - key, in tokens; True means keep."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Bool, Int
from torch import Tensor

Distance = Int[Tensor, "query key"]
Visible = Bool[Tensor, "query key"]


def causal(distance: Distance, window: int | None) -> Visible:
    """Every earlier key and the query itself."""
    return distance >= 0


def causal_sliding(distance: Distance, window: int | None) -> Visible:
    """The last `window` keys, the query itself included (Beltagy et al. 2020, arXiv 2004.05150)."""
    return (distance >= 0) & (distance < _wanted(window))


def bidirectional(distance: Distance, window: int | None) -> Visible:
    """Every key."""
    return distance == distance


def bidirectional_sliding(distance: Distance, window: int | None) -> Visible:
    """Keys fewer than `window` tokens away on either side."""
    return distance.abs() < _wanted(window)


def _wanted(window: int | None) -> int:
    if window is None:
        raise ValueError("a sliding mask needs a window, the number of keys a query sees; got None.")
    return window


MASKS: dict[tuple[bool, str], Callable[[Distance, int | None], Visible]] = {
    (True, "full"): causal,
    (True, "sliding"): causal_sliding,
    (False, "full"): bidirectional,
    (False, "sliding"): bidirectional_sliding,
}
"""Masks by (causal, layer type)."""


def visible_keys(
    queries: Int[Tensor, " query"], keys: Int[Tensor, " key"], *, is_causal: bool, layer_type: str, window: int | None
) -> Visible:
    """Which of the keys at these slots each query may see, before padding is taken into account."""
    return MASKS[is_causal, layer_type](queries[:, None] - keys[None, :], window)
