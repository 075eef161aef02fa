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


def _grouped_rows(part: str) -> Transform:
    """Query, key or value rows of a fused weight or bias whose rows go [kv_head, queries of the group + key + value, d_head].

    With one query per key that is [head, 3, d_head], as GPT-NeoX and BLOOM have it; with one group for all, all queries, then key
    and value, as Falcon 7B and GPT-BigCode have it.
    """

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        return ((cfg.n_heads + 2 * cfg.n_kv_heads) * cfg.d_head, *shape[1:])

    def apply(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
        queries = cfg.n_heads // cfg.n_kv_heads
        rows = {"q": slice(queries), "k": slice(queries, queries + 1), "v": slice(queries + 1, queries + 2)}[part]
        return tensor.unflatten(0, (cfg.n_kv_heads, queries + 2, cfg.d_head))[:, rows].flatten(0, 2)

    return Transform(source_shape, apply)


def _stacked_rows(part: int) -> Transform:
    """Query, key or value rows of a fused weight or bias that holds all queries, then all keys, then all values."""

    def sizes(cfg: TransformerConfig) -> list[int]:
        return [heads * cfg.d_head for heads in (cfg.n_heads, cfg.n_kv_heads, cfg.n_kv_heads)]

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        return (sum(sizes(cfg)), *shape[1:])

    def apply(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
        return tensor.split(sizes(cfg))[part]

    return Transform(source_shape, apply)


def _half_of_rows(part: int) -> Transform:
    """The first or second half of a weight's rows, such as the gate and up weights that Phi-3 stacks."""

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        return (2 * shape[0], *shape[1:])

    return Transform(source_shape, lambda tensor, cfg: tensor.chunk(2)[part])


def _linear_rows(layout: str, part: str, has_middle: bool = True) -> Transform:
    """Rows of what a linear mixer's checkpoint stacks into one weight, bias or convolution, whose middle axis of 1 is dropped.

    qkvz, ba    Qwen3-Next: for each key head its query, key, values and gates; and its strengths and decays
    qkv         the convolution's channels: all queries, keys and values
    zvkqd       Mamba-2: all gates, values, keys (B), queries (C) and steps; "vkq" for its convolution
    lightning   MiniMax: for each head its query, key and value
    has_middle: whether convolutions have that axis of 1, which GGUF files drop
    """

    def rows(cfg: TransformerConfig) -> tuple[int, dict[str, int]]:
        keys, heads = (cfg.linear.n_key_heads if cfg.linear else 0) or cfg.n_heads, cfg.n_heads
        key, value = keys * cfg.d_head, heads * cfg.d_value
        return {
            "qkvz": (keys, {"q": key, "k": key, "v": value, "z": value}),
            "ba": (keys, {"b": heads, "a": heads}),
            "qkv": (1, {"q": key, "k": key, "v": value}),
            "zvkqd": (1, {"z": value, "v": value, "k": key, "q": key, "d": heads}),
            "vkq": (1, {"v": value, "k": key, "q": key}),
            "lightning": (heads, {"q": key, "k": key, "v": value}),
        }[layout]

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        middle = (1,) if has_middle and layout in ("qkv", "vkq") and len(shape) == 2 else ()
        return (sum(rows(cfg)[1].values()), *middle, *shape[1:])

    def apply(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
        groups, sizes = rows(cfg)
        pieces = tensor.unflatten(0, (groups, -1)).split([size // groups for size in sizes.values()], 1)
        chosen = dict(zip(sizes, pieces, strict=True))[part].flatten(0, 1)
        return chosen.squeeze(1) if chosen.dim() == 3 else chosen

    return Transform(source_shape, apply)


def _norm_groups(shape: Shape, cfg: TransformerConfig) -> Shape:
    """A norm's gains with its groups on an axis of their own, as GGUF files hold them."""
    groups = cfg.linear.norm_groups if cfg.linear else 1
    return (groups, shape[0] // groups)


def _log_of_rates(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    """The logarithms of decay rates, of which GGUF files hold the negative, as a column."""
    return (-tensor[:, 0]).log()


def _half_of_heads(part: int) -> Transform:
    """The first or second half of each head's rows, such as the queries and gates that Qwen3-Next stacks."""

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        return (2 * shape[0], *shape[1:])

    def apply(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
        return tensor.unflatten(0, (cfg.n_heads, 2, -1))[:, part].flatten(0, 1)

    return Transform(source_shape, apply)


def _half_split_rows(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    """Rows of each head from interleaved rotary order (pairs 2i, 2i + 1) to half-split order (pairs i, i + d_head/2)."""
    return tensor.unflatten(0, (-1, cfg.d_head // 2, 2)).transpose(1, 2).flatten(0, 2)


def _leading_rows(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    return tensor[: cfg.n_ctx + cfg.position_offset]


def _per_head(shape: Shape, cfg: TransformerConfig) -> Shape:
    """[head * d_head, ...] with heads on their own axis and the rest between them: [head, ..., d_head]."""
    return (shape[0] // cfg.d_head, *shape[1:], cfg.d_head)


def _join_heads(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    return tensor.transpose(1, -1).flatten(0, 1)


def _per_head_out(shape: Shape, cfg: TransformerConfig) -> Shape:
    return (cfg.n_heads, cfg.d_head, shape[0])


def _inputs_first(shape: Shape, cfg: TransformerConfig) -> Shape:
    """[expert, out, in] as [expert, in, out]; a bias [expert, out] stays."""
    return (shape[0], *shape[:0:-1])


def _part_of_columns(part: Callable[[Tensor], Tensor]) -> Transform:
    """Gate or up weights of all experts, out of [expert, in, 2 * out], or their biases, out of [expert, 2 * out]."""

    def source_shape(shape: Shape, cfg: TransformerConfig) -> Shape:
        return (*_inputs_first(shape, cfg)[:-1], 2 * shape[1])

    return Transform(source_shape, lambda tensor, cfg: part(tensor).transpose(1, -1))


def _joined_halves(tensor: Tensor, cfg: TransformerConfig) -> Tensor:
    """Rows of the first halves of all heads, then of the second, to each head's two halves side by side."""
    return tensor.unflatten(0, (2, -1, cfg.d_head // 2)).transpose(0, 1).flatten(0, 2)


TRANSFORMS: dict[str, Transform] = {
    "as_is": Transform(_same, lambda tensor, cfg: tensor),
    "transpose": Transform(_reversed, lambda tensor, cfg: tensor.t()),
    "only_row": Transform(lambda shape, cfg: (1, *shape), lambda tensor, cfg: tensor[0]),
    "as_row": Transform(lambda shape, cfg: shape[1:], lambda tensor, cfg: tensor[None]),
    "leading_rows": Transform(lambda shape, cfg: (AtLeast(shape[0]), *shape[1:]), _leading_rows),
    "columns_q": _columns_third(0),
    "columns_k": _columns_third(1),
    "columns_v": _columns_third(2),
    "heads_q": _grouped_rows("q"),
    "heads_k": _grouped_rows("k"),
    "heads_v": _grouped_rows("v"),
    "stacked_q": _stacked_rows(0),
    "stacked_k": _stacked_rows(1),
    "stacked_v": _stacked_rows(2),
    "first_half": _half_of_rows(0),
    "second_half": _half_of_rows(1),
    "first_half_of_heads": _half_of_heads(0),
    "second_half_of_heads": _half_of_heads(1),
    "half_split_rows": Transform(_same, _half_split_rows),
    "joined_halves": Transform(_same, _joined_halves),
    "minus_one": Transform(_same, lambda tensor, cfg: tensor - 1),
    **{
        f"{layout}_{part}": _linear_rows(layout, part)
        for layout in ("qkvz", "ba", "qkv", "zvkqd", "vkq", "lightning")
        for part in (layout if layout != "lightning" else "qkv")
    },
    **{f"flat_vkq_{part}": _linear_rows("vkq", part, has_middle=False) for part in "vkq"},
    "norm_groups": Transform(_norm_groups, lambda tensor, cfg: tensor.flatten()),
    "only_column": Transform(lambda shape, cfg: (*shape, 1), lambda tensor, cfg: tensor[:, 0]),
    "log_of_rates": Transform(lambda shape, cfg: (*shape, 1), _log_of_rates),
    "channels": Transform(lambda shape, cfg: (shape[0], 1, shape[1]), lambda tensor, cfg: tensor.squeeze(1)),
    "flat": Transform(lambda shape, cfg: (1, 1, *shape, 1), lambda tensor, cfg: tensor.flatten()),
    "experts_even": _part_of_columns(lambda tensor: tensor[..., ::2]),
    "experts_odd": _part_of_columns(lambda tensor: tensor[..., 1::2]),
    "experts_first": _part_of_columns(lambda tensor: tensor.chunk(2, -1)[0]),
    "experts_last": _part_of_columns(lambda tensor: tensor.chunk(2, -1)[1]),
    "experts_transpose": Transform(_inputs_first, lambda tensor, cfg: tensor.transpose(1, 2)),
    "join_heads": Transform(_per_head, _join_heads),
    "join_heads_out": Transform(_per_head_out, lambda tensor, cfg: tensor.flatten(0, 1).t()),
}
