"""The up-projection of latent keys and values, which newer GGUF files hold in two parts, as one tensor again."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch
from torch import Tensor

from .fill import TensorSource
from .transforms import Shape

KEYS, VALUES, BOTH = "attn_k_b.weight", "attn_v_b.weight", "attn_kv_b.weight"
IN_PARTS = re.compile(rf"^(blk\.\d+\.){re.escape(KEYS)}$")


class JoinedLatents:
    """A file's tensors, but that [head, rank, d_key] and [head, d_value, rank] are one of [head * (d_key + d_value), rank]."""

    def __init__(self, source: TensorSource) -> None:
        self.source = source
        names = set(source.names())
        layers = [found.group(1) for name in names if (found := IN_PARTS.match(name))]
        self._parts = {
            layer + BOTH: (layer + KEYS, layer + VALUES) for layer in layers if layer + VALUES in names and self._fits(layer)
        }
        self._hidden = {part for parts in self._parts.values() for part in parts}

    def _fits(self, layer: str) -> bool:
        keys, values = self.source.shape(layer + KEYS), self.source.shape(layer + VALUES)
        return len(keys) == len(values) == 3 and keys[0] == values[0] and keys[1] == values[2]

    def names(self) -> Iterable[str]:
        return [*(name for name in self.source.names() if name not in self._hidden), *self._parts]

    def shape(self, name: str) -> Shape:
        if name not in self._parts:
            return self.source.shape(name)
        keys, values = map(self.source.shape, self._parts[name])
        return (keys[0] * (keys[2] + values[1]), keys[1])

    def where(self, name: str) -> str:
        return self.source.where(name)

    def read(self, name: str) -> Tensor:
        if name not in self._parts:
            return self.source.read(name)
        keys, values = map(self.source.read, self._parts[name])
        return torch.cat([keys.transpose(1, 2), values], 1).flatten(0, 1)
