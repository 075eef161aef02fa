"""Tensors that share memory: each parameter of a model, and each tensor in a file, has memory of its own."""

from __future__ import annotations

from torch import Tensor


class Apart:
    """Copies a contiguous tensor where it overlaps one that came before it, and passes any other on as it is."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, int]] = []

    def __call__(self, tensor: Tensor) -> Tensor:
        start, end = _span(tensor)
        if any(start < other_end and other_start < end for other_start, other_end in self._taken):
            tensor = tensor.clone()
        self._taken.append(_span(tensor))
        return tensor


def _span(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
