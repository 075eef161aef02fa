"""Llama 4's temperature, and its files that also hold images' weights, against Hugging Face."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models import load_model
from models.loading.families import FAMILIES
from tests.oracles.cases_experts import LLAMA4
from tests.oracles.hf_models import Case, hf_model, randomise, save_case

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

HOT = Case("Llama4TextConfig", {**LLAMA4, "floor_scale": 3, "attn_scale": 0.4})


def test_temperature(tmp_path: Path) -> None:
    """Unpadded, and decoded; then with padding, which moves no position here, though it does in Hugging Face's."""
    theirs = hf_model(HOT)
    save_case(HOT, theirs, tmp_path)
    ours = load_model(tmp_path)
    tokens = torch.randint(60, (2, 20), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        wanted, got = theirs(tokens).logits, ours(tokens)
        assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max()
        options = {"attention_mask": torch.ones_like(tokens), "do_sample": False, "pad_token_id": 0}
        assert torch.equal(ours.generate(tokens, 12), theirs.generate(tokens, max_new_tokens=12, **options))
        padded, mask = torch.nn.functional.pad(tokens, (5, 0)), torch.nn.functional.pad(torch.ones_like(tokens), (5, 0))
        shifted = ours(padded, attention_mask=mask)[:, 5:]
        assert (shifted - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_multimodal_files_give_their_text_part(tmp_path: Path) -> None:
    vision = {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28}
    vision |= {"patch_size": 14, "vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16}
    config = transformers.Llama4Config(text_config=LLAMA4, vision_config=vision)
    for part in (config, config.text_config):
        part.bos_token_id = part.eos_token_id = part.pad_token_id = None
    theirs = transformers.Llama4ForConditionalGeneration._from_config(config, attn_implementation="eager")
    randomise(theirs, torch.Generator().manual_seed(0))
    theirs.eval().save_pretrained(tmp_path)
    tokens = torch.randint(60, (2, 12), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        wanted, got = theirs.language_model(tokens).logits, load_model(tmp_path)(tokens)
    assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_layer_types() -> None:
    """Scout has experts everywhere, Maverick in every other layer; every fourth layer has no positions."""
    sizes = {"hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 3, "head_dim": 8}
    sizes |= {"num_key_value_heads": 1}
    scout = FAMILIES["llama4_text"].to_config(sizes)
    assert scout.layer_types == ("chunked", "chunked", "chunked", "full_nope")
    maverick = FAMILIES["llama4_text"].to_config({**sizes, "interleave_moe_layer_step": 2, "use_qk_norm": False})
    assert maverick.layer_types == ("chunked_dense", "chunked", "chunked_dense", "full_nope")
    last, first = maverick.for_layer(3), maverick.for_layer(0)
    assert (last.mask, last.d_rotary, first.mask, first.d_rotary) == ("full", 0, "chunked", 8)
    assert last.temperature is not None and first.temperature is None
    assert first.experts is None and first.mlp == "gated" and first.d_mlp == 16_384
