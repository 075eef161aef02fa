"""Our logits against Hugging Face's on the same weights: every family and option, padded either side, with and without cache."""

from __future__ import annotations

import pytest
import torch

from tests.oracles.hf_models import hf_model
from tests.oracles.parity import DECODERS, SIDES, Pair, decoder_error, make_pair, tokens_and_mask

pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

TOLERANCE = 1e-5
PROMPT, NEW = 9, 20


@pytest.fixture(scope="module", params=list(DECODERS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case = DECODERS[request.param]
    return make_pair(request.param, case, hf_model(case), tmp_path_factory.mktemp("checkpoint"))


@pytest.mark.parametrize("side", SIDES)
def test_logits(pair: Pair, side: str) -> None:
    error = decoder_error(pair, side)
    assert error < TOLERANCE, f"{pair.name}: {error:.1e} of the largest logit"


def test_greedy_decoding(pair: Pair) -> None:
    tokens, mask = (part[:, -PROMPT:].contiguous() for part in tokens_and_mask("left"))
    mask[1, :4] = 0
    # Past its trained length, Hugging Face's cache keeps keys of a dynamically scaled model at angles that no longer hold.
    options = {"attention_mask": mask, "do_sample": False, "pad_token_id": 0, "use_cache": "dynamic" not in pair.name}
    wanted = pair.theirs.generate(input_ids=tokens, max_new_tokens=NEW, **options)
    assert torch.equal(pair.ours.generate(tokens, NEW, attention_mask=mask, use_cache=False), wanted), "without cache"
    assert torch.equal(pair.ours.generate(tokens, NEW, attention_mask=mask, use_cache=True), wanted), "with cache"
