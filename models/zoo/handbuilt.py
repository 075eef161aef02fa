"""Models built by hand, whose circuits are known because they were written down: ground truth for every analysis.

The residual stream is a row of one-hot blocks, so nothing interferes with anything:

    token     the token at this position          d_vocab wide
    position  the position                        n_ctx wide
    previous  the token before, once written      d_vocab wide
    pointer   a position to attend, once written  n_ctx wide
    out       the prediction, read by unembed     d_vocab wide

There are no norms, no MLPs and no learned numbers. Scores are `beta` where query and key match and 0 elsewhere; at beta = 60
the softmax is one-hot to float32 precision wherever something matches, and uniform where nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..config import TransformerConfig
from ..errors import ConfigError, closest
from ..transformer import HookedTransformer

Block = Literal["token", "position", "previous", "pointer", "out"]
BLOCKS: tuple[Block, ...] = ("token", "position", "previous", "pointer", "out")
BETA = 60.0


@dataclass(frozen=True)
class Match:
    """Scores `strength` where the key block's one-hot index equals the query block's plus `shift`; or, with `only`, where the key
    block's index is that number, whatever the query holds."""

    query: Block
    key: Block
    shift: int = 0
    strength: float = BETA
    only: int | None = None


@dataclass(frozen=True)
class HeadRule:
    """What one head does: it adds up its matches to decide where to look, and moves `gain` times the `value` block of what it
    finds into the `out` block."""

    matches: tuple[Match, ...] = ()
    value: Block = "token"
    out: Block = "out"
    gain: float = 1.0


PREVIOUS_TOKEN = HeadRule((Match("position", "position", -1),), "token", "previous")
UNUSED = HeadRule(gain=0.0)


def build(
    layers: Sequence[Sequence[HeadRule]],
    d_vocab: int,
    n_ctx: int,
    *,
    bos_token_id: int | None = None,
    logit_scale: float = BETA,
    name: str = "handbuilt",
) -> HookedTransformer:
    """An attention-only model with these heads; layers with fewer heads than the widest get unused ones.

    `logit_scale` multiplies the `out` block to give the logits. Raises ConfigError for a model without heads.
    """
    if not layers or not any(layers):
        raise ConfigError("layers must hold at least one head rule.")
    sizes = _block_sizes(d_vocab, n_ctx)
    n_heads = max(len(rules) for rules in layers)
    d_head = max([d_vocab, *(_width(rule, sizes) for rules in layers for rule in rules)])
    cfg = TransformerConfig(
        n_layers=len(layers), d_model=sum(sizes.values()), n_heads=n_heads, d_head=d_head, d_vocab=d_vocab, n_ctx=n_ctx,
        norm="none", final_norm=False, attn_scale=1.0, bos_token_id=bos_token_id, name=name, family="handbuilt",
    )  # fmt: skip
    model = HookedTransformer(cfg)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        spans = _block_spans(sizes)
        model.embed.weight[:, spans["token"]] = torch.eye(d_vocab)
        model.pos_embed.weight[:, spans["position"]] = torch.eye(n_ctx)
        model.unembed.weight[:, spans["out"]] = logit_scale * torch.eye(d_vocab)
        for layer, rules in enumerate(layers):
            for head, rule in enumerate(rules):
                _write_head(model, layer, head, rule, spans)
    return model


def _block_sizes(d_vocab: int, n_ctx: int) -> dict[str, int]:
    return {block: n_ctx if block in ("position", "pointer") else d_vocab for block in BLOCKS}


def _block_spans(sizes: dict[str, int]) -> dict[str, slice]:
    ends = torch.tensor(list(sizes.values())).cumsum(0).tolist()
    return {block: slice(end - sizes[block], end) for block, end in zip(sizes, ends, strict=True)}


def _width(rule: HeadRule, sizes: dict[str, int]) -> int:
    """Dimensions of a head that a rule needs: its matches side by side, or its value."""
    return max(sum(sizes[match.key] for match in rule.matches), sizes[rule.value])


def _match_matrix(match: Match, n_query: int, n_key: int) -> Float[Tensor, "n_query n_key"]:
    """Maps the query block's one-hot index to that of the key it asks for, or to nothing where there is no such key."""
    matrix = torch.zeros(n_query, n_key)
    if match.only is not None:
        matrix[:, match.only] = match.strength
        return matrix
    rows = torch.arange(max(0, -match.shift), min(n_query, n_key - match.shift))
    matrix[rows, rows + match.shift] = match.strength
    return matrix


def _write_head(model: HookedTransformer, layer: int, head: int, rule: HeadRule, spans: dict[str, slice]) -> None:
    attn: Any = model.blocks[layer].attn
    d_head = model.cfg.d_head
    rows = slice(head * d_head, (head + 1) * d_head)
    query, key, value = (linear.weight[rows] for linear in (attn.q, attn.k, attn.v))
    start = 0
    for match in rule.matches:
        q_span, k_span = spans[match.query], spans[match.key]
        n_query, n_key = q_span.stop - q_span.start, k_span.stop - k_span.start
        dims = slice(start, start + n_key)
        query[dims, q_span] = _match_matrix(match, n_query, n_key).T
        key[dims, k_span] = torch.eye(n_key)
        start += n_key
    n_value = spans[rule.value].stop - spans[rule.value].start
    n_out = spans[rule.out].stop - spans[rule.out].start
    value[:n_value, spans[rule.value]] = torch.eye(n_value)
    attn.o.weight[spans[rule.out], rows][:, :n_value] = rule.gain * torch.eye(n_out, n_value)


def induction_model(
    d_vocab: int,
    n_ctx: int,
    *,
    beta: float = BETA,
    ov: float = 1.0,
    with_previous_head: bool = True,
    extra_heads: int = 0,
    bos_token_id: int | None = 0,
) -> HookedTransformer:
    """The two-layer induction circuit of Elhage et al. 2021: 0.0 writes the previous token, 1.0 matches it against the current
    one and copies what it finds. The one composition is a0.h0 -> a1.h0 by key.

    `ov` multiplies what 1.0 writes: -1 makes an anti-induction head, 0 a head that matches and writes nothing.
    `with_previous_head=False` leaves 0.0 empty, so that 1.0 matches nothing and attends uniformly.
    Position 0 has no predecessor and copies itself, which is harmless exactly when it holds a BOS token that never recurs.
    """
    previous = HeadRule((Match("position", "position", -1, beta),), "token", "previous")
    induction = HeadRule((Match("token", "previous", 0, beta),), "token", "out", ov)
    unused = (UNUSED,) * extra_heads
    layers = [(previous if with_previous_head else UNUSED, *unused), (induction, *unused)]
    return build(layers, d_vocab, n_ctx, bos_token_id=bos_token_id, logit_scale=beta, name="handbuilt-induction")


def pointer_model(
    d_vocab: int, n_ctx: int, *, shift: int = 1, beta: float = BETA, bos_token_id: int | None = 0
) -> HookedTransformer:
    """The other induction algorithm, by query composition: 0.0 finds the earlier occurrence of the current token and fetches its
    *position*; 1.0 attends that position plus `shift` and copies. The one composition is a0.h0 -> a1.h0 by query.

    shift=1 is induction; shift=-1 attends the predecessor, which looks alike and predicts nothing.
    """
    duplicate = HeadRule(_duplicate_matches(beta), "position", "pointer")
    follow = HeadRule((Match("pointer", "position", shift, beta),), "token", "out")
    return build([[duplicate], [follow]], d_vocab, n_ctx, bos_token_id=bos_token_id, logit_scale=beta, name="handbuilt-pointer")


def _duplicate_matches(beta: float) -> tuple[Match, ...]:
    """The same token, but not the query's own position, which is pushed far below the rest."""
    return Match("token", "token", 0, beta), Match("position", "position", 0, -2 * beta)


def _single_head_matches(kind: str, beta: float, offset: int) -> tuple[Match, ...]:
    """Where each kind of single head looks."""
    shifts = {"previous": -1, "self": 0, "offset": -offset}
    if kind in shifts:
        return (Match("position", "position", shifts[kind], beta),)
    if kind == "sink":
        return (Match("position", "position", strength=beta, only=0),)
    return _duplicate_matches(beta) if kind == "duplicate" else ()


SINGLE_HEADS = ("previous", "self", "offset", "duplicate", "sink", "uniform")


def single_head_model(
    kind: str, d_vocab: int, n_ctx: int, *, offset: int = 0, beta: float = BETA, ov: float = 1.0, bos_token_id: int | None = 0
) -> HookedTransformer:
    """One layer, one head that is *not* an induction head, whatever it looks like on some texts.

    kind: "previous" (key i - 1), "self", "offset" (key i - offset), "duplicate" (earlier occurrences of the query's token),
    "sink" (the first position), "uniform" (all keys alike). Rows where the rule finds nothing are uniform.
    `ov` multiplies the copied token. Raises ConfigError for another kind.
    """
    if kind not in SINGLE_HEADS:
        raise ConfigError(f"kind must be one of {', '.join(SINGLE_HEADS)}; got {kind!r}{closest(kind, SINGLE_HEADS)}.")
    rule = HeadRule(_single_head_matches(kind, beta, offset), "token", "out", ov)
    return build([[rule]], d_vocab, n_ctx, bos_token_id=bos_token_id, logit_scale=beta, name=f"handbuilt-{kind}")
