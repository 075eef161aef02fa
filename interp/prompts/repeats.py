"""Random token sequences with repeats: the behaviour of induction heads without any knowledge of language.

Random ids carry no meaning, so what a model gains in the second repeat it owes to the first one alone (Olsson et al. 2022,
arXiv 2209.11895). Ids are unique inside a repeat: each token has exactly one earlier occurrence, one right answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from ..errors import PromptError
from ..protocol import bos_token_id, n_logits, special_token_ids
from ..run import generator
from .pairs import PromptPairs


def repeated_tokens(
    d_vocab: int,
    distance: int,
    batch: int,
    *,
    repeats: int = 2,
    bos_token_id: int | None = None,
    exclude: Iterable[int] = (),
    seed: int = 0,
) -> Int[Tensor, "batch pos"]:
    """[BOS] then one random segment of `distance` unique tokens, `repeats` times over: pos = [1 +] repeats * distance.

    A segment holds neither BOS nor the ids in `exclude`. The draw depends on `seed` alone, never on the global generator.
    Raises PromptError where the vocabulary has fewer usable ids than `distance`.
    """
    for name, value in (("distance", distance), ("batch", batch), ("repeats", repeats)):
        if value < 1:
            raise PromptError(f"{name} must be at least 1, got {value}.")
    segment = _segments(d_vocab, distance, batch, {bos_token_id, *exclude}, seed)
    tokens = segment.repeat(1, repeats)
    if bos_token_id is None:
        return tokens
    return torch.cat([torch.full((batch, 1), bos_token_id), tokens], dim=1)


def repeated_token_pairs(
    model: Any,
    n: int = 10,
    distance: int = 20,
    seed: int = 0,
    *,
    corruption: str = "match",
    prepend_bos: bool | None = None,
) -> PromptPairs:
    """Clean/corrupt pairs that only an induction circuit tells apart, for a model with or without a tokenizer.

    The clean prompt is a segment r, then r again up to token A; the answer B is what followed A in r. Elsewhere in r, token C
    is followed by D, the wrong answer. The corrupt prompt swaps two tokens of the first segment, so that the same bag of tokens
    now says the answer is D:

        clean                ... A B ... C D ...  | ... A  ->  B
        corrupt, "match"     ... C B ... A D ...  | ... A  ->  D      what stands before the candidates is swapped
        corrupt, "successor" ... A D ... C B ...  | ... A  ->  D      the candidates themselves are swapped

    "match" leaves both candidates in place. What changes is which of them is preceded by A, and only a head that reads the
    previous token can tell: its output reaches the induction head's keys. This corruption shows the K-composition.
    "successor" leaves the match in place and changes what it points at: it shows the token moved through the values.
    Both leave every position-only path unchanged, so a head that attends a fixed offset scores 0.

    `model` is a model or its config (d_vocab, n_ctx, bos_token_id). `prepend_bos=None` takes the model's default.
    Raises PromptError for no pairs, a distance under 6, a vocabulary or a context that is too small, an unknown corruption, or a
    model whose logits do not cover its tokens.
    """
    model = model if hasattr(model, "cfg") else SimpleNamespace(cfg=model)
    cfg = model.cfg
    if corruption not in ("match", "successor"):
        raise PromptError(f'corruption must be "match" or "successor", got {corruption!r}.')
    if n < 1:
        raise PromptError(f"n must be at least 1 pair, got {n}.")
    if n_logits(cfg) < cfg.d_vocab:
        raise PromptError(
            f"the model reads {cfg.d_vocab} tokens, but its logits cover only the first {n_logits(cfg)}, so it cannot predict a "
            "repeated token; use prompts of your own, with answers among the logits."
        )
    if distance < 6:
        raise PromptError(f"distance must be at least 6 tokens, so that two token pairs fit into a segment, got {distance}.")
    if prepend_bos is None:
        prepend_bos = bool(getattr(cfg, "default_prepend_bos", False))
    bos = bos_token_id(model)
    if prepend_bos and bos is None:
        raise PromptError("prepend_bos=True needs a model with a BOS token, and this model has none.")
    segment = _segments(cfg.d_vocab, distance, n, special_token_ids(model), seed)
    query = (distance - 1) // 2
    length = int(prepend_bos) + distance + query + 1
    if length > cfg.n_ctx:
        raise PromptError(f"distance={distance} makes prompts of {length} tokens, more than the model's context of {cfg.n_ctx}.")
    other = torch.randint(query + 2, distance - 1, (n,), generator=generator(seed + 1))
    return _assemble(segment, query, other, corruption, bos if prepend_bos else None, seed)


def _assemble(
    segment: Int[Tensor, "batch distance"],
    query: int,
    other: Int[Tensor, " batch"],
    corruption: str,
    bos: int | None,
    seed: int,
) -> PromptPairs:
    """A stands at `query`, C at `other` (never repeated in the second half, like its successor)."""
    rows = torch.arange(len(segment))
    shift = 0 if corruption == "match" else 1
    swapped = segment.clone()
    swapped[rows, query + shift] = segment[rows, other + shift]
    swapped[rows, other + shift] = segment[rows, query + shift]
    start = torch.full((len(segment), 0 if bos is None else 1), -1 if bos is None else bos)
    clean = torch.cat([start, segment, segment[:, : query + 1]], dim=1)
    corrupt = torch.cat([start, swapped, segment[:, : query + 1]], dim=1)
    return PromptPairs(
        clean=clean,
        corrupt=corrupt,
        answers=segment[:, query + 1 : query + 2],
        wrong_answers=segment[rows, other + 1][:, None],
        attention_mask=torch.ones_like(clean, dtype=torch.bool),
        last=torch.full((len(segment),), clean.shape[1] - 1),
        prepend_bos=bos is not None,
        source=f"repeated random tokens, distance {segment.shape[1]}, {corruption} corruption, seed {seed}",
    )


def _segments(d_vocab: int, distance: int, batch: int, exclude: Iterable[Any], seed: int) -> Int[Tensor, "batch distance"]:
    allowed = torch.ones(d_vocab, dtype=torch.bool)
    allowed[[token for token in exclude if token is not None and 0 <= token < d_vocab]] = False
    ids = allowed.nonzero().flatten()
    if len(ids) < distance:
        raise PromptError(
            f"distance={distance} needs as many different tokens, and the vocabulary of {d_vocab} leaves {len(ids)}; "
            "use a smaller distance."
        )
    draws = generator(seed)
    return torch.stack([ids[torch.randperm(len(ids), generator=draws)[:distance]] for _ in range(batch)])
