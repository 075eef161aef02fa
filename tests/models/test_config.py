"""Configs: derived values, what is refused and in which words, and the JSON round trip."""

from __future__ import annotations

import math

import pytest
import torch

from models import ConfigError, RotaryConfig, TransformerConfig
from models.positions.rotary import SCALINGS
from tests.models.variants import VARIANTS, tiny_config, tiny_model

EVERY = pytest.mark.parametrize("variant", VARIANTS)


def test_derived_fields_follow_a_change():
    cfg = tiny_config("gpt2")
    assert cfg.replace(d_head=16).attn_scale == 0.25 and cfg.replace(attn_scale=2.0, d_head=16).attn_scale == 2.0
    assert cfg.replace(n_heads=8).n_kv_heads == 8 and cfg.replace(d_vocab=60).d_vocab_out == 60
    assert cfg.replace(window=3).layer_types == ("sliding",) * 3 and len(cfg.replace(n_layers=5).layer_types) == 5
    assert tiny_config("mistral").replace(rotary=RotaryConfig(base=1e6)).rotary_for(0).base == 1e6
    assert tiny_config("llama").replace(n_heads=8).n_kv_heads == 2
    assert tiny_config("gemma3").replace(rotary=RotaryConfig(base=1e5)).rotary_for(0) == RotaryConfig()


@pytest.mark.parametrize(
    ("rotary", "message"),
    [
        ({"scaling": "yarn", "original_n_ctx": -16}, "rotary.original_n_ctx must be positive"),
        ({"scaling": "yarn", "original_n_ctx": 16, "beta_fast": -3.0}, "rotary.beta_fast must exceed rotary.beta_slow"),
        ({"base": 1.0}, "rotary.base must exceed 1"),
        (
            {"scaling": "yarn", "original_n_ctx": 16, "attention_factor": math.nan},
            "rotary.attention_factor must be a finite number",
        ),
        ({"scaling": "llama3", "original_n_ctx": 16, "high_freq_factor": 0.5}, "rotary.high_freq_factor must be at least"),
        ({"scaling": "dynamic", "original_n_ctx": 16, "dim": 2}, "more than 2 rotated dimensions"),
    ],
)
def test_bad_rotary_settings_get_one_sentence(rotary, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config("llama").replace(rotary=RotaryConfig(**rotary))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": "2"}, "n_layers must be a whole number, got '2'"),
        ({"causal": "false"}, "causal must be True or False, got 'false'"),
        ({"attn_scale": "abc"}, "attn_scale must be a finite number"),
        ({"embed_scale": None}, "embed_scale must be a finite number, got None"),
        ({"d_mlp": True}, "d_mlp must be a whole number, got True"),
        ({"eos_token_ids": "abc"}, "eos_token_ids must be a tuple of whole numbers"),
        ({"rotary": "abc"}, "rotary must be a RotaryConfig or None, got 'abc'"),
        ({"rotary": {"base": "a"}}, "rotary.base must be a finite number, got 'a'"),
    ],
)
def test_json_of_the_wrong_types_gets_one_sentence(change, message):
    with pytest.raises(ConfigError, match=message):
        TransformerConfig.from_dict(tiny_config("gpt2").to_dict() | change)
    with pytest.raises(ConfigError, match="object of fields"):
        TransformerConfig.from_json("[1]")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_kv_heads": 3}, "n_heads must be a multiple of n_kv_heads, got 4 and 3"),
        ({"norm": "rmsnorm"}, "norm must be one of .* got 'rmsnorm' .*rms_norm"),
        ({"window": 0, "layer_types": ("full",) * 3}, "window must be a positive number of keys, got 0"),
        ({"layer_types": ("sliding",) * 3}, "window must say"),
        ({"layer_types": ("full",)}, "layer_types must name all 3 layers, got 1"),
        ({"d_model": -1}, "d_model must be a positive whole number, got -1"),
        ({"positions": "rotary", "d_head": 7}, "rotary.dim must be even"),
        ({"attn_softcap": -1.0}, "attn_softcap must be positive"),
    ],
)
def test_bad_configs_get_one_sentence(changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config("gpt2", **changes)


@EVERY
def test_configs_survive_json(variant, tmp_path):
    cfg = tiny_config(variant)
    assert TransformerConfig.from_json(cfg.to_json()) == cfg
    (tmp_path / "config.json").write_text(cfg.to_json())
    assert TransformerConfig.from_json(tmp_path / "config.json") == cfg
    with pytest.raises(ConfigError, match="unknown field 'n_layer'.*n_layers"):
        TransformerConfig.from_dict(cfg.to_dict() | {"n_layer": 3})
    with pytest.raises(ConfigError, match="lacks n_layers"):
        TransformerConfig.from_dict({key: value for key, value in cfg.to_dict().items() if key != "n_layers"})


def test_a_llama3_ramp_may_be_a_step():
    rotary = RotaryConfig(scaling="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=1.0, original_n_ctx=64)
    inverse = SCALINGS["llama3"](rotary, 16, 100).inverse
    plain = SCALINGS["none"](RotaryConfig(), 16, 100).inverse
    kept = plain * 64 / (2 * math.pi) > 1
    assert torch.allclose(inverse, torch.where(kept, plain, plain / 4)) and 0 < kept.sum() < 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attn_scale": -0.3}, "attn_scale must be positive, got -0.3"),
        ({"norm_eps": 1e308}, "norm_eps must be a finite number"),
        ({"d_model": 10**30}, "d_model must be a whole number"),
    ],
)
def test_numbers_that_no_model_can_compute_with_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config("llama", **changes)


def test_a_sigmoid_bias_is_a_number():
    with pytest.raises(ConfigError, match="sigmoid_bias.* must be a number, got 'x'"):
        tiny_model("sigmoid", extra={"sigmoid_bias": "x"})
