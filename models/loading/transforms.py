"""How a tensor in a checkpoint becomes one of our parameters: small named functions that weight maps refer to.

A parameter's shape fixes the shape its tensor must have in the file, so sizes are checked before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..config import TransformerConfig

Shape = tuple[int, ...]


class AtLeast(int):
    """A size that the file may exceed, such as a longer table of positions."""

    def __repr__(self) -> str:
        return f"at least {int(self)}"


@dataclass(frozen=True)
class Transform:
    """`source_shape(shape of our parameter, cfg)` is what the file must hold; `apply(tensor, cfg)` makes our parameter of it."""

    source_shape: Callable[[Shape, TransformerConfig], Shape]
    apply: Callable[[Tensor, TransformerConfig], Tensor]


def _reversed(shape: Shape, cfg: TransformerConfig) -> Shape:
    return shape[::-1]


def _same(shape: Shape, cfg: TransformerConfig) -> Shape:
    return shape


def _columns_third(part: int) -> Transform:
    """Query, key or value columns of a fused [d_model, 3 * d_model] weight, or of its bias, as GPT-2 stores them."""

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        return (*shape[:0:-1], 3 * shape[0])

    def apply(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
        return tensor.chunk(3, -1)[part].t()

    return Transform(source_shape, apply)


def _heads_third(part: int) -> Transform:
    """Query, key or value rows of a fused weight or bias whose rows go [head, 3, d_head], as GPT-NeoX stores them."""

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        return (3 * shape[0], *shape[1:])

    def apply(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
        return tensor.unflatten(0, (cfg.n_heads, 3, cfg.d_head))[:, part].flatten(0, 1)

    return Transform(source_shape, apply)


def _half_split_rows(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    """Rows of each head from interleaved rotary order (pairs 2i, 2i + 1) to half-split order (pairs i, i + d_head/2)."""
    return tensor.unflatten(0, (-1, cfg.d_head // 2, 2)).transpose(1, 2).flatten(0, 2)


def _leading_rows(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    return tensor[: cfg.n_ctx]


def _per_head(shape: Shape, cfg: TransformerConfig) -> Shape:
    """[head * d_head, ...] with heads on their own axis and the rest between them: [head, ..., d_head]."""
    return (shape[0] // cfg.d_head, *shape[1:], cfg.d_head)


def _join_heads(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    return tensor.transpose(1, -1).flatten(0, 1)


def _per_head_out(shape: Shape, cfg: TransformerConfig) -> Shape:
    return (cfg.n_heads, cfg.d_head, shape[0])


TRANSFORMS: dict[str, Transform] = {
    "as_is": Transform(_same, lambda tensor, cfg: tensor),
    "transpose": Transform(_reversed, lambda tensor, cfg: tensor.t()),
    "leading_rows": Transform(lambda shape, cfg: (AtLeast(shape[0]), *shape[1:]), _leading_rows),
    "columns_q": _columns_third(0),
    "columns_k": _columns_third(1),
    "columns_v": _columns_third(2),
    "heads_q": _heads_third(0),
    "heads_k": _heads_third(1),
    "heads_v": _heads_third(2),
    "half_split_rows": Transform(_same, _half_split_rows),
    "minus_one": Transform(_same, lambda tensor, cfg: tensor - 1),
    "join_heads": Transform(_per_head, _join_heads),
    "join_heads_out": Transform(_per_head_out, lambda tensor, cfg: tensor.flatten(0, 1).t()),
}
