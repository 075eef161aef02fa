"""Config maps of the families that differ in positions: what their options mean, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from models import ConfigError, TransformerConfig
from models.config import AlibiConfig
from models.loading.families import FAMILIES

SIZES = {"vocab_size": 20, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 6}
MPT = {"vocab_size": 20, "d_model": 24, "n_layers": 2, "n_heads": 6}
NEO = {
    "vocab_size": 20,
    "hidden_size": 24,
    "num_layers": 3,
    "num_heads": 6,
    "attention_types": [[["global", "local", "local"], 1]],
}
PHI3 = {**SIZES, "intermediate_size": 16, "max_position_embeddings": 64, "original_max_position_embeddings": 16}
LONG = {"type": "su", "short_factor": [1, 2], "long_factor": [2.0, 4.0]}


def config(model_type: str, **fields: Any) -> TransformerConfig:
    sizes = {"mpt": MPT, "gpt_neo": NEO, "phi3": PHI3, "opt": {**SIZES, "ffn_dim": 16}}.get(model_type, SIZES)
    return FAMILIES[model_type].to_config({**sizes, **fields})


@pytest.mark.parametrize(
    ("fields", "block", "n_kv_heads"),
    [
        ({}, "parallel_shared", 1),
        ({"multi_query": False}, "parallel_shared", 6),
        ({"multi_query": False, "parallel_attn": False}, "pre", 6),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, "parallel", 2),
        ({"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 2}, "parallel", 2),
        ({"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1}, "parallel_shared", 3),
    ],
)
def test_falcon_blocks(fields: dict[str, Any], block: str, n_kv_heads: int) -> None:
    cfg = config("falcon", **fields)
    assert (cfg.block, cfg.n_kv_heads, cfg.positions, cfg.score_terms) == (block, n_kv_heads, "rotary", ())


def test_falcon_with_alibi_has_no_rotation() -> None:
    cfg = config("falcon", alibi=True)
    assert cfg.positions == "none" and cfg.rotary is None and cfg.alibi == AlibiConfig(is_rounded=True, is_scaled=True)


@pytest.mark.parametrize(
    ("model_type", "fields", "message"),
    [
        (
            "falcon",
            {"new_decoder_architecture": True, "parallel_attn": False},
            "parallel_attn=False with new_decoder_architecture",
        ),
        ("falcon", {"num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn=2 needs new_decoder_architecture"),
        ("falcon", {"alibi": 1}, "'alibi' in config.json must be true or false, got 1"),
        ("mpt", {"attn_config": {"clip_qkv": 6}}, "attn_config has clip_qkv=6, which is not supported"),
        ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, "attn_type='multiquery_attention'"),
        ("mpt", {"attn_config": {"alibi": False}}, "alibi=False"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln=True"),
        ("mpt", {"attn_config": {"prefix_lm": True}}, "prefix_lm=True"),
        ("mpt", {"attn_config": {"softmax_scale": "big"}}, "'softmax_scale' in attn_config of config.json must be a number"),
        ("mpt", {"no_bias": False}, "no_bias=False in config.json is not supported"),
        ("mpt", {"logit_scale": 0.5}, "logit_scale=0.5"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm=True"),
        ("opt", {"word_embed_proj_dim": 12}, "word_embed_proj_dim=12 differs from hidden_size=24"),
        ("opt", {"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine=False"),
        ("gpt_neo", {"attention_types": [[["global", "nearby", "local"], 1]]}, "attention_types holds 'nearby'"),
        ("gpt_neo", {"attention_types": [[["global"], 10**12]]}, "attention_types lists 1000000000000 layers, but num_layers=3"),
        ("gpt_neo", {"attention_types": [["global"], 3]}, "'attention_types' in config.json must be a list of pairs"),
        ("phi3", {"rope_scaling": {**LONG, "short_factor": 2.0}}, "'short_factor' in rope_scaling of config.json must be a list"),
        ("phi3", {"rope_scaling": {**LONG, "long_factor": [1.0]}}, "rotary.long_factor must hold a divisor for each of 2 pairs"),
    ],
)
def test_what_is_refused(model_type: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(model_type, **fields)


def test_mpt_attention_options() -> None:
    cfg = config("mpt", attn_config={"alibi_bias_max": 4, "softmax_scale": 0.4})
    assert cfg.alibi == AlibiConfig(max_bias=4.0) and cfg.attn_scale == 0.4 and not cfg.norm_bias
    assert config("mpt").attn_scale == 0.5 and config("mpt", attn_config=None).alibi == AlibiConfig()


def test_older_names_of_fields() -> None:
    older = {"vocab_size": 20, "n_embed": 24, "n_layer": 2, "n_head": 6, "seq_length": 64}
    cfg = FAMILIES["bloom"].to_config(older)
    assert (cfg.d_model, cfg.n_layers, cfg.n_heads, cfg.n_ctx) == (24, 2, 6, 64)
    assert FAMILIES["bloom"].to_config({**older, "num_hidden_layers": 3}).n_layers == 3
    with pytest.raises(ConfigError, match="states 2 layers, but the checkpoint has only 1 tensors"):
        FAMILIES["bloom"].to_config(older, n_tensors=1)


def test_gpt_neo_layers() -> None:
    cfg = config("gpt_neo")
    assert cfg.layer_types == ("full", "sliding", "sliding") and cfg.window == 256 and cfg.attn_scale == 1.0
    twice = config("gpt_neo", num_layers=5, attention_types=[[["global", "local"], 2], [["local"], 1]])
    assert twice.layer_types == ("full", "sliding", "full", "sliding", "sliding")


def test_longrope_under_its_older_name() -> None:
    rotary = config("phi3", rope_scaling=LONG, rope_theta=500.0).rotary
    assert rotary is not None and (rotary.scaling, rotary.base, rotary.factor, rotary.original_n_ctx) == (
        "longrope",
        500.0,
        4.0,
        16,
    )
    assert rotary.short_factor == (1.0, 2.0) and rotary.long_factor == (2.0, 4.0)


def test_the_tensor_that_a_checkpoint_has_is_taken() -> None:
    for present in ("ln_attn", "input_layernorm"):
        names = {"transformer.word_embeddings.weight", f"transformer.h.0.{present}.weight"}
        weight = FAMILIES["falcon"].weight_map(names)["blocks.{l}.ln1.weight"]
        assert weight.name == f"transformer.h.{{l}}.{present}.weight"
