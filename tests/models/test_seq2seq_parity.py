"""Our encoder-decoders against Hugging Face's on the same weights: logits, patterns, encoder states, decoding."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch

from models import HookedTransformer, load_model
from tests.oracles.cases_seq2seq import SEQ2SEQ_CASES, hf_seq2seq
from tests.oracles.parity import Pair, encoder_decoder_error, make_pair, relative_error, source_and_mask, target_and_mask

pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

TOLERANCE, IN_FLOAT64 = 1e-5, 1e-7
NEW = 12


@pytest.fixture(scope="module", params=list(SEQ2SEQ_CASES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case = SEQ2SEQ_CASES[request.param]
    return make_pair(request.param, case, hf_seq2seq(case), tmp_path_factory.mktemp("checkpoint"))


def wide_rms_norm(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """T5's norm, whose own code takes its statistics in float32 whatever the model's dtype."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)


def wide_sinusoids(length: int, width: int) -> torch.Tensor:
    """Marian's positions, whose own code rounds them to float32: sines in the first half, cosines in the second."""
    angles = torch.arange(length).double()[:, None] * 10_000.0 ** (-torch.arange(0, width, 2).double() / width)
    return torch.cat((angles.sin(), angles.cos()), -1)


@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_logits_of_each_row_are_those_without_padding(pair, side):
    assert encoder_decoder_error(pair, side) < TOLERANCE


@torch.no_grad()
def test_patterns_and_encoder_states(pair):
    # In float64: T5's unscaled scores are large, so that float32 leaves weights no closer than 2e-5.
    theirs, ours = (copy.deepcopy(model).double() for model in (pair.theirs, pair.ours))
    for module in theirs.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = partial(wide_rms_norm, module)
        if type(module).__name__ == "MarianSinusoidalPositionalEmbedding":
            module.weight.data = wide_sinusoids(*module.weight.shape)
    source, mask = source_and_mask("right")
    target, _ = target_and_mask("none")
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
        for row in range(len(source)):
            assert (got[row][:, real[row]] - pattern[row][:, real[row]]).abs().max() < IN_FLOAT64
    states = ours.encode(source, attention_mask=mask)
    assert relative_error(states[real], wanted.encoder_last_hidden_state[real]) < IN_FLOAT64


@torch.no_grad()
@pytest.mark.parametrize(("name", "auto_class"), [("t5 v1.1", "T5EncoderModel"), ("umt5", "UMT5EncoderModel")])
def test_an_encoder_alone(name, auto_class, tmp_path):
    theirs = hf_seq2seq(SEQ2SEQ_CASES[name], auto_class=auto_class)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    source, mask = source_and_mask("left")
    wanted, real = theirs(input_ids=source, attention_mask=mask).last_hidden_state, mask.bool()
    assert isinstance(ours, HookedTransformer) and "blocks.2.attn.hook_pattern" in ours.hook_names
    assert relative_error(ours(source, attention_mask=mask)[real], wanted[real]) < TOLERANCE


def test_greedy_decoding(pair):
    source, mask = source_and_mask("right")
    options = {"attention_mask": mask, "do_sample": False, "pad_token_id": 0}
    wanted = pair.theirs.generate(input_ids=source, max_new_tokens=NEW, **options)
    for use_cache in (False, True):
        got = pair.ours.generate(source, NEW, attention_mask=mask, use_cache=use_cache)
        assert torch.equal(got, wanted), f"use_cache={use_cache}"
