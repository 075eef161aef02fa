"""Our logits against Hugging Face's on the same weights: every family and option, padded either side, with and without cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models import HookedTransformer, load_model
from tests.oracles.hf_models import CASES, hf_model, save_case

pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

TOLERANCE = 1e-5
BATCH, LENGTH, PROMPT, NEW = 3, 24, 9, 20


@pytest.fixture(scope="module", params=list(CASES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, HookedTransformer]:
    """A case's name, the Hugging Face model, and ours, loaded from the folder that theirs was saved to."""
    case = CASES[request.param]
    theirs = hf_model(case)
    folder = tmp_path_factory.mktemp("checkpoint")
    save_case(case, theirs, folder)
    return request.param, theirs, load_model(folder)


def tokens_and_mask(side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch whose rows have 0, 4 and 11 padding tokens."""
    tokens = torch.randint(60, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    for row, padding in enumerate((0, 4, 11)):
        if side == "left":
            mask[row, :padding] = 0
        elif side == "right":
            mask[row, LENGTH - padding :] = 0
    return tokens, mask


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_logits(pair: tuple[str, Any, HookedTransformer], side: str) -> None:
    name, theirs, ours = pair
    tokens, mask = tokens_and_mask(side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        wanted = theirs(input_ids=tokens, attention_mask=mask, position_ids=positions).logits
        got = ours(tokens, attention_mask=None if side == "none" else mask)
    error = relative_error(got[mask.bool()], wanted[mask.bool()])
    assert error < TOLERANCE, f"{name}: {error:.1e} of the largest logit"


def test_greedy_decoding(pair: tuple[str, Any, HookedTransformer]) -> None:
    name, theirs, ours = pair
    tokens, mask = (part[:, -PROMPT:].contiguous() for part in tokens_and_mask("left"))
    mask[1, :4] = 0
    # Past its trained length, Hugging Face's cache keeps keys of a dynamically scaled model at angles that no longer hold.
    options = {"attention_mask": mask, "do_sample": False, "pad_token_id": 0, "use_cache": "dynamic" not in name}
    wanted = theirs.generate(input_ids=tokens, max_new_tokens=NEW, **options)
    assert torch.equal(ours.generate(tokens, NEW, attention_mask=mask, use_cache=False), wanted), "without cache"
    assert torch.equal(ours.generate(tokens, NEW, attention_mask=mask, use_cache=True), wanted), "with cache"
