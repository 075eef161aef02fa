"""The key/value cache of incremental decoding: what each layer needs of the past, in buffers that double as they fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .config import TransformerConfig

if TYPE_CHECKING:
    from .attention.context import CrossContext


class KVCache:
    """Keys and values of all layers for the tokens seen so far; pass the same object to successive calls of a model.

    Keys are stored rotated. Calls with a cache carry no gradients. `cross` is the source of an encoder-decoder: its states,
    and the keys and values that each layer's cross-attention has of them, computed once.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        self.cfg = cfg
        self.batch: int | None = None
        self.positions: Tensor | None = None
        self.real: Tensor | None = None
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._filled: dict[int, int] = {}
        self._states: dict[int, dict[str, Tensor]] = {}
        self._states_before: dict[int, dict[str, Tensor]] = {}
        self.cross: CrossContext | None = None

    @property
    def length(self) -> int:
        """Slots in use, padding included."""
        return 0 if self.positions is None else self.positions.shape[1]

    @property
    def n_bytes(self) -> int:
        """Bytes of the keys, values and recurrent states in use, and of an encoder-decoder's source."""
        buffers = [(buffer[:, : self._filled[layer]]) for store in (self._keys, self._values) for layer, buffer in store.items()]
        states = [tensor for state in self._states.values() for tensor in state.values()]
        source = 0 if self.cross is None else self.cross.n_bytes
        return source + sum(tensor.numel() * tensor.element_size() for tensor in buffers + states)

    def state(self, layer: int) -> dict[str, Tensor]:
        """The recurrent state of a layer, by name; empty before the first token."""
        return self._states.get(layer, {})

    def set_state(self, layer: int, state: dict[str, Tensor]) -> None:
        """Replace a layer's recurrent state. Tensors handed over before must not be changed in place."""
        self._states[layer] = state

    def append_tokens(
        self, batch: int, positions: Int[Tensor, "_ pos"], real: Bool[Tensor, "batch pos"] | None
    ) -> tuple[Tensor, int, Tensor | None]:
        """Record the tokens about to be processed; returns the positions of all slots, how many are past, and their padding."""
        n_past, self.batch = self.length, batch
        self._states_before = dict(self._states)
        if real is None and self.real is not None:
            real = torch.ones_like(positions, dtype=torch.bool)
        if self.real is None and real is not None and self.positions is not None:
            self.real = torch.ones(real.shape[0], self.length, dtype=torch.bool, device=real.device)
        if self.positions is not None and positions.shape[0] != self.positions.shape[0]:
            positions, self.positions = positions.expand(batch, -1), self.positions.expand(batch, -1)
        self.positions = positions if self.positions is None else torch.cat((self.positions, positions), 1)
        self.real = real if self.real is None or real is None else torch.cat((self.real, real), 1)
        return self.positions, n_past, self.real

    def rewind(self, length: int) -> None:
        """Forget the tokens past `length`, which is how many there were before a call that did not finish."""
        if self.length > length:
            self._states = self._states_before
        self._filled = {layer: min(filled, length) for layer, filled in self._filled.items()}
        if self.positions is not None and length < self.length:
            self.positions = self.positions[:, :length] if length else None
            self.real = None if self.real is None or not length else self.real[:, :length]
        self.batch, self.cross = (self.batch, self.cross) if length else (None, None)

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add one layer's new keys and values, [batch, new, kv_head, width]; returns all of that layer's, old and new."""
        start = self._filled.get(layer, 0)
        stop = start + keys.shape[1]
        for buffers, new in ((self._keys, keys), (self._values, values)):
            buffer = buffers.get(layer) if start else None
            if buffer is None or stop > buffer.shape[1]:
                buffers[layer] = _grown(buffer, new, stop)
            buffers[layer][:, start:stop] = new
        self._filled[layer] = stop
        return self._keys[layer][:, :stop], self._values[layer][:, :stop]


def _grown(buffer: Tensor | None, new: Float[Tensor, "batch new kv_head width"], slots: int) -> Tensor:
    """A larger buffer with the old content; twice the slots wanted, so that growth costs a constant per token."""
    batch, _, heads, width = new.shape
    larger = new.new_empty(batch, max(64, 2 * slots), heads, width)
    if buffer is not None:
        larger[:, : buffer.shape[1]] = buffer
    return larger
