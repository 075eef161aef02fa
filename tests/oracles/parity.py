"""How far our models are from Hugging Face's on the same weights: asked by the parity tests and by the documentation's table.

Errors are the largest difference over the largest entry of theirs, at real tokens, without padding and with it on either side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch

from models import load_model
from tests.oracles import (
    cases_encoders,
    cases_experts,
    cases_gemma3n,
    cases_general,
    cases_latent,
    cases_linear,
    cases_positions,
    cases_seq2seq,
    hf_models,
)
from tests.oracles.hf_models import Case, hf_model, save_case

SIDES = ("none", "left", "right")

DECODERS: dict[str, Case] = {
    name: case
    for module in (
        *(hf_models, cases_experts, cases_gemma3n, cases_general),
        *(cases_latent, cases_linear, cases_positions, cases_seq2seq),
    )
    for name, case in module.CASES.items()
}
ENCODERS: dict[str, Case] = cases_encoders.CASES
ENCODER_DECODERS: dict[str, Case] = cases_seq2seq.SEQ2SEQ_CASES


@dataclass(frozen=True)
class Pair:
    """A case's name, the Hugging Face model, and ours, loaded from the folder that theirs was saved to."""

    name: str
    theirs: Any
    ours: Any


def make_pair(name: str, case: Case, theirs: Any, folder: Path) -> Pair:
    """Save their model and load it as ours."""
    save_case(case, theirs, folder)
    return Pair(name, theirs, load_model(folder))


def tokens_and_mask(side: str, length: int = 24, paddings: tuple[int, ...] = (0, 4, 11), seed: int = 1, low: int = 0) -> Any:
    """Tokens [batch, pos] from `low` on, and their mask, one row for each number of padding tokens."""
    tokens = torch.randint(low, 60, (len(paddings), length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones(len(paddings), length, dtype=torch.long)
    for row, padding in enumerate(paddings):
        if side == "left":
            mask[row, :padding] = 0
        elif side == "right":
            mask[row, length - padding :] = 0
    return tokens, mask


def source_and_mask(side: str) -> Any:
    """What encoders read, with every token an ordinary one of the decoders too."""
    source, mask = tokens_and_mask(side, 19, (0, 4, 9))
    return source % 45, mask


def target_and_mask(side: str) -> Any:
    """What decoders have written, as `source_and_mask`."""
    target, mask = tokens_and_mask(side, 15, (0, 6, 3), seed=2)
    return target % 45, mask


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@torch.no_grad()
def decoder_error(pair: Pair, side: str) -> float:
    """Of logits."""
    tokens, mask = tokens_and_mask(side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    wanted = pair.theirs(input_ids=tokens, attention_mask=mask, position_ids=positions).logits
    got = pair.ours(tokens, attention_mask=None if side == "none" else mask)
    return relative_error(got[mask.bool()], wanted[mask.bool()])


@torch.no_grad()
def encoder_error(pair: Pair, side: str) -> float:
    """Of logits where the model has a head, else of the last states. No real token is one of the padding tokens 0, 1 and 3."""
    tokens, mask = tokens_and_mask(side, 25, (0, 5, 14), low=4)
    wanted = cases_encoders.hf_output(pair.theirs, tokens, mask)
    got = pair.ours(tokens, attention_mask=None if side == "none" else mask)
    return relative_error(got[mask.bool()], wanted[mask.bool()])


@torch.no_grad()
def encoder_decoder_error(pair: Pair, side: str) -> float:
    """Of logits, each row's against those of the row alone, without padding."""
    source, source_mask = source_and_mask(side)
    target, target_mask = target_and_mask(side)
    masks = {} if side == "none" else {"attention_mask": source_mask, "decoder_attention_mask": target_mask}
    got, errors = pair.ours(source, target, **masks), []
    for row in range(len(source)):
        real, kept = source_mask[row].bool(), target_mask[row].bool()
        wanted = pair.theirs(input_ids=source[row, real][None], decoder_input_ids=target[row, kept][None]).logits[0]
        errors.append(relative_error(got[row, kept], wanted))
    return max(errors)


def every_pair(folder: Path) -> Iterator[tuple[Pair, Any]]:
    """All cases, one at a time, each with the function that measures its error."""
    places = (folder / str(place) for place in count())
    for name, case in DECODERS.items():
        yield make_pair(name, case, hf_model(case), next(places)), decoder_error
    for name, case in ENCODERS.items():
        for head in (True, False):
            yield make_pair(name, case, cases_encoders.hf_encoder(case, head), next(places)), encoder_error
    for name, case in ENCODER_DECODERS.items():
        yield make_pair(name, case, cases_seq2seq.hf_seq2seq(case), next(places)), encoder_decoder_error
