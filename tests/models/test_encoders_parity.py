"""Encoders against Hugging Face's on the same weights: logits of those with a head, last states of those without."""

from __future__ import annotations

import pytest
import torch

from tests.oracles.cases_encoders import hf_encoder, hf_output
from tests.oracles.parity import ENCODERS, SIDES, Pair, encoder_error, make_pair, relative_error, tokens_and_mask

pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

TOLERANCE = 1e-5
LENGTH, PADDINGS = 25, (0, 5, 14)
HEADS = {True: "with head", False: "bare"}


@pytest.fixture(
    scope="module", params=[(name, head) for name in ENCODERS for head in HEADS], ids=lambda p: f"{p[0]}, {HEADS[p[1]]}"
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, head = request.param
    return make_pair(name, ENCODERS[name], hf_encoder(ENCODERS[name], head), tmp_path_factory.mktemp("checkpoint"))


@pytest.mark.parametrize("side", SIDES)
def test_output(pair: Pair, side: str) -> None:
    error = encoder_error(pair, side)
    assert error < TOLERANCE, f"{pair.name}: {error:.1e} of the largest entry"


def test_token_types(pair: Pair) -> None:
    name, theirs, ours = pair.name, pair.theirs, pair.ours
    if ours.cfg.n_token_types < 2:
        pytest.skip("this model has one token type")
    tokens, mask = tokens_and_mask("right", LENGTH, PADDINGS, low=4)
    types = torch.arange(LENGTH).remainder(ours.cfg.n_token_types).expand(len(PADDINGS), -1)
    wanted = hf_output(theirs, tokens, mask, token_type_ids=types)
    got = ours(tokens, attention_mask=mask, token_types=types)
    assert relative_error(got[mask.bool()], wanted[mask.bool()]) < TOLERANCE, name


def test_patterns(pair: Pair) -> None:
    """Each layer's pattern where theirs is one, and the dense path that it takes."""
    name, theirs, ours = pair.name, pair.theirs, pair.ours
    if name.startswith(("longformer", "big_bird")):
        pytest.skip("theirs has another shape, or loses weight that counts twice; see test_encoders_sparse")
    tokens, mask = tokens_and_mask("none", LENGTH, PADDINGS, low=4)
    with torch.no_grad():
        theirs_all = theirs(input_ids=tokens, attention_mask=mask, output_attentions=True).attentions
    _, cache = ours.run_with_cache(tokens, names="blocks.*.attn.hook_pattern")
    for layer, wanted in enumerate(theirs_all):
        assert (cache["pattern", layer] - wanted).abs().max() < 1e-5
