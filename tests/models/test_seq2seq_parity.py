"""Our encoder-decoders against Hugging Face's on the same weights: logits, patterns, encoder states, decoding."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch

from models import HookedTransformer, load_model
from models.encoder_decoder import HookedEncoderDecoder
from tests.oracles.cases_seq2seq import SEQ2SEQ_CASES, hf_seq2seq
from tests.oracles.hf_models import save_case

pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

TOLERANCE, IN_FLOAT64 = 1e-5, 1e-7
BATCH, SOURCE, TARGET, NEW = 3, 19, 15, 12


@pytest.fixture(scope="module", params=list(SEQ2SEQ_CASES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, HookedEncoderDecoder]:
    """The Hugging Face model, and ours, loaded from the folder that theirs was saved to."""
    case = SEQ2SEQ_CASES[request.param]
    theirs = hf_seq2seq(case)
    folder = tmp_path_factory.mktemp("checkpoint")
    save_case(case, theirs, folder)
    return theirs, load_model(folder)


def padded(length: int, paddings: tuple[int, ...], side: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of tokens and its mask, one row for each number of padding tokens."""
    tokens = torch.randint(45, (BATCH, length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones(BATCH, length, dtype=torch.long)
    for row, padding in enumerate(paddings):
        if side == "left":
            mask[row, :padding] = 0
        elif side == "right":
            mask[row, length - padding :] = 0
    return tokens, mask


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def wide_rms_norm(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """T5's norm, whose own code takes its statistics in float32 whatever the model's dtype."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_logits_of_each_row_are_those_without_padding(pair, side):
    theirs, ours = pair
    source, source_mask = padded(SOURCE, (0, 4, 9), side, seed=1)
    target, target_mask = padded(TARGET, (0, 6, 3), side, seed=2)
    masks = {} if side == "none" else {"attention_mask": source_mask, "decoder_attention_mask": target_mask}
    got = ours(source, target, **masks)
    for row in range(BATCH):
        real, wanted_at = source_mask[row].bool(), target_mask[row].bool()
        wanted = theirs(input_ids=source[row, real][None], decoder_input_ids=target[row, wanted_at][None]).logits[0]
        error = relative_error(got[row, wanted_at], wanted)
        assert error < TOLERANCE, f"row {row}: {error:.1e} of the largest logit"


@torch.no_grad()
def test_patterns_and_encoder_states(pair):
    # In float64: T5's unscaled scores are large, so that float32 leaves weights no closer than 2e-5.
    theirs, ours = (copy.deepcopy(model).double() for model in pair)
    for module in theirs.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = partial(wide_rms_norm, module)
    source, mask = padded(SOURCE, (0, 4, 9), "right", seed=1)
    target, _ = padded(TARGET, (0, 0, 0), "none", seed=2)
    wanted = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target, output_attentions=True)
    _, cache = ours.run_with_cache(source, target, attention_mask=mask)
    real = mask.bool()
    for name, attentions in (
        ("decoder.blocks.{}.attn.hook_pattern", wanted.decoder_attentions),
        ("decoder.blocks.{}.cross_attn.hook_pattern", wanted.cross_attentions),
    ):
        for layer, pattern in enumerate(attentions):
            assert (cache[name.format(layer)] - pattern).abs().max() < IN_FLOAT64, name.format(layer)
    for layer, pattern in enumerate(wanted.encoder_attentions):
        got = cache[f"encoder.blocks.{layer}.attn.hook_pattern"]
        for row in range(BATCH):
            assert (got[row][:, real[row]] - pattern[row][:, real[row]]).abs().max() < IN_FLOAT64
    states = ours.encode(source, attention_mask=mask)
    assert relative_error(states[real], wanted.encoder_last_hidden_state[real]) < IN_FLOAT64


@torch.no_grad()
@pytest.mark.parametrize(("name", "auto_class"), [("t5 v1.1", "T5EncoderModel"), ("umt5", "UMT5EncoderModel")])
def test_an_encoder_alone(name, auto_class, tmp_path):
    theirs = hf_seq2seq(SEQ2SEQ_CASES[name], auto_class=auto_class)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    source, mask = padded(SOURCE, (0, 4, 9), "left", seed=1)
    wanted, real = theirs(input_ids=source, attention_mask=mask).last_hidden_state, mask.bool()
    assert isinstance(ours, HookedTransformer) and "blocks.2.attn.hook_pattern" in ours.hook_names
    assert relative_error(ours(source, attention_mask=mask)[real], wanted[real]) < TOLERANCE


def test_greedy_decoding(pair):
    theirs, ours = pair
    source, mask = padded(SOURCE, (0, 4, 9), "right", seed=1)
    options = {"attention_mask": mask, "do_sample": False, "pad_token_id": 0}
    wanted = theirs.generate(input_ids=source, max_new_tokens=NEW, **options)
    for use_cache in (False, True):
        got = ours.generate(source, NEW, attention_mask=mask, use_cache=use_cache)
        assert torch.equal(got, wanted), f"use_cache={use_cache}"
