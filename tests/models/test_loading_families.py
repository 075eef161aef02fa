"""Config maps: what each family's config.json means, older and newer spellings, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models import ConfigError, RotaryConfig, TransformerConfig
from models.build import make_model
from models.loading.families import FAMILIES
from models.loading.fill import entry_of
from models.loading.load import with_context

SIZES = {
    "vocab_size": 20,
    "hidden_size": 24,
    "intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
GPT2 = {"vocab_size": 20, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 32}

RELATIVE = {"relative_attention": True, "pos_att_type": "c2p|p2c", "type_vocab_size": 2}

GEMMA4 = {
    **SIZES,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}

T5 = {"vocab_size": 20, "d_model": 24, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 3, "feed_forward_proj": "gated-gelu"}

BART = {"vocab_size": 20, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
BART |= {"encoder_attention_heads": 3, "decoder_attention_heads": 2}

OWN_SIZES = {
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gptj": {**GPT2, "rotary_dim": 4},
    "gpt_neo": {
        "vocab_size": 20,
        "hidden_size": 24,
        "num_layers": 2,
        "num_heads": 3,
        "attention_types": [[["global", "local"], 1]],
    },
    "mpt": {"vocab_size": 20, "d_model": 24, "n_layers": 2, "n_heads": 3},
    "opt": {**SIZES, "ffn_dim": 16},
    "distilbert": {"vocab_size": 20, "dim": 24, "hidden_dim": 16, "n_layers": 2, "n_heads": 3},
    "deberta": {**SIZES, **RELATIVE, "talking_head": True},
    "deberta-v2": {**SIZES, **RELATIVE, "norm_rel_ebd": "layer_norm"},
    "cohere": {**SIZES, "use_qk_norm": True},
    "diffllama": {**SIZES, "num_attention_heads": 6, "num_key_value_heads": 2},
    "falcon": {**SIZES, "new_decoder_architecture": True, "num_kv_heads": 1},
    "gemma3n": GEMMA4,
    "gemma3n_text": GEMMA4,
    "gemma4": GEMMA4,
    "gemma4_text": GEMMA4,
    "kimi_linear": {**SIZES, "q_lora_rank": 6, "num_hidden_layers": 5},
    "t5": T5,
    "mt5": T5,
    "umt5": T5,
    "bart": BART,
    "marian": {**BART, "decoder_start_token_id": 1},
}
"""Of families whose config.json has other names for them, or options that bring parameters."""


def config(model_type: str, **fields: Any) -> TransformerConfig:
    return FAMILIES[model_type].to_config({**OWN_SIZES.get(model_type, SIZES), **fields})


@pytest.mark.parametrize("model_type", list(FAMILIES))
def test_every_family_has_a_tensor_for_every_parameter(model_type: str) -> None:
    """With all biases on, embeddings untied and only some layers with experts; and no tensor is left over."""
    options = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}
    options |= {"mlp_only_layers": [0], "interleave_moe_layer_step": 2, "first_k_dense_replace": 1}
    cfg = config(model_type, **options)
    with torch.device("meta"):
        names = [name for name, _ in make_model(cfg).named_parameters(remove_duplicate=False)]
    weights = FAMILIES[model_type].weight_map(set())
    entries = {name: entry_of(name, weights, cfg) for name in names}
    assert not (missing := [name for name, entry in entries.items() if entry is None]), missing
    spare = {name for name in set(weights) - set(entries.values()) if ".bias" not in name}
    assert not spare, spare
    assert not any("{base}" in weight.name or "{head}" in weight.name for weight in weights.values())


@pytest.mark.parametrize("model_type", list(FAMILIES))
def test_configs_survive_json(model_type: str) -> None:
    cfg = config(model_type)
    assert TransformerConfig.from_json(cfg.to_json()) == cfg
    assert cfg.family in (model_type, "gemma3", "gemma3n", "gemma4", "llama4", "roberta")


def test_defaults_fill_what_old_files_leave_out() -> None:
    few = {"vocab_size": 20, "hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 3}
    cfg = FAMILIES["llama"].to_config({**few, "rms_norm_eps": 1e-6})
    assert (cfg.n_kv_heads, cfg.d_head, cfg.n_ctx, cfg.tie_embeddings) == (3, 8, 2048, False)
    assert cfg.rotary == RotaryConfig(base=10_000.0)


def test_gemma_scales() -> None:
    cfg = config("gemma3", query_pre_attn_scalar=16)
    assert cfg.embed_scale == 24**0.5 and cfg.attn_scale == 0.25 and cfg.norm == "rms_norm_offset" and cfg.block == "sandwich"


@pytest.mark.parametrize(
    "model_type, fields, window, layer_types",
    [
        ("llama", {"sliding_window": 5}, None, ("full",) * 4),
        ("mistral", {"sliding_window": 5}, 5, ("sliding",) * 4),
        ("mistral", {"sliding_window": None}, None, ("full",) * 4),
        (
            "mistral",
            {"sliding_window": 5, "layer_types": ["full_attention", "sliding_attention"] * 2},
            5,
            ("full", "sliding") * 2,
        ),
        ("qwen2", {"sliding_window": 5}, None, ("full",) * 4),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3},
            5,
            ("full", "full", "full", "sliding"),
        ),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 4}, 5, ("full",) * 4),
        ("gemma2", {"sliding_window": 5}, 5, ("sliding", "full") * 2),
        ("gemma3_text", {"sliding_window": 5, "sliding_window_pattern": 3}, 5, ("sliding", "sliding", "full", "sliding")),
        (
            "gemma3_text",
            {"sliding_window": 5, "layer_types": ["full_attention"] * 3 + ["sliding_attention"]},
            5,
            ("full",) * 3 + ("sliding",),
        ),
    ],
)
def test_windows(model_type: str, fields: dict[str, Any], window: int | None, layer_types: tuple[str, ...]) -> None:
    cfg = config(model_type, **fields)
    assert (cfg.window, cfg.layer_types) == (window, layer_types)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "fields, wanted, n_ctx",
    [
        ({"rope_theta": 500.0}, RotaryConfig(base=500.0), 64),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, RotaryConfig(scaling="linear", factor=2.0), 64),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 500}}, RotaryConfig(base=500.0), 64),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 3.0}},
            RotaryConfig(scaling="dynamic", factor=3.0, original_n_ctx=64),
            192,
        ),
        ({"rope_scaling": YARN}, RotaryConfig(scaling="yarn", factor=4.0, original_n_ctx=64), 256),
        (
            {"rope_scaling": {**YARN, "factor": None}, "max_position_embeddings": 128},
            RotaryConfig(scaling="yarn", factor=2.0, original_n_ctx=64),
            128,
        ),
    ],
)
def test_rotary_settings(fields: dict[str, Any], wanted: RotaryConfig, n_ctx: int) -> None:
    cfg = config("llama", **fields)
    assert cfg.rotary == wanted and cfg.n_ctx == n_ctx


def test_gemma3_has_two_rotary_settings() -> None:
    cfg = config("gemma3_text", rope_theta=700.0, rope_local_base_freq=70.0, rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert cfg.rotary == RotaryConfig(base=700.0, scaling="linear", factor=8.0) and cfg.by_type["sliding"][
        "rotary"
    ] == RotaryConfig(base=70.0)


def test_neox_rotates_a_quarter_of_each_head() -> None:
    assert config("gpt_neox").rotary == RotaryConfig(base=10_000.0, dim=2)
    assert config("gpt_neox", rotary_pct=1.0, rotary_emb_base=50).rotary == RotaryConfig(base=50.0)
    still = config("gpt_neox", rotary_pct=0)
    assert (still.positions, still.rotary) == ("none", None)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"])
def test_other_families_rotate_all_of_each_head(model_type: str) -> None:
    """Only GPT-NeoX reads a rotated part."""
    parameters = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
    assert config(model_type, rope_parameters=parameters).rotary == RotaryConfig(base=500.0)
    assert config(model_type, partial_rotary_factor=0.5).rotary == config(model_type).rotary


@pytest.mark.parametrize(
    "model_type, fields, said",
    [
        ("llama", {"rope_scaling": {"rope_type": "mrope", "factor": 2.0}}, "rotary scaling 'mrope' is not supported"),
        ("llama", {"rope_scaling": {"rope_type": "yarm", "factor": 2.0}}, "did you mean 'yarn'"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "lacks 'factor'"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "lacks 'low_freq_factor'"),
        ("llama", {"hidden_act": "mish"}, "activation 'mish' is not supported"),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}, "quantization_config=.*gptq.* is not supported"),
        ("llama", {"head_dim": None, "num_attention_heads": 5}, "hidden_size=24 is not a multiple of num_attention_heads=5"),
        ("llama", {"num_key_value_heads": 2}, "n_heads must be a multiple of n_kv_heads"),
        ("llama", {"hidden_size": "24"}, "'hidden_size' in config.json must be a positive whole number, got '24'"),
        ("llama", {"hidden_size": True}, "'hidden_size' in config.json must be a positive whole number, got True"),
        ("llama", {"num_attention_heads": 0}, "'num_attention_heads' in config.json must be a positive whole number, got 0"),
        ("gpt2", {"scale_attn_weights": "false"}, "'scale_attn_weights' in config.json must be true or false, got 'false'"),
        (
            "gpt_neox",
            {"use_parallel_residual": "false"},
            "'use_parallel_residual' in config.json must be true or false, got 'false'",
        ),
        ("gpt_neox", {"rotary_pct": "0.5"}, "'rotary_pct' in config.json must be a number, got '0.5'"),
        ("qwen2", {"use_sliding_window": 1}, "'use_sliding_window' in config.json must be true or false, got 1"),
        (
            "gemma3_text",
            {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": "8"}}},
            "'factor' in full_attention of rope_parameters of config.json must be a number or null, got '8'",
        ),
        ("llama", {"eos_token_id": ["x"]}, "'eos_token_id' in config.json must be a token id or a list of them"),
        ("llama", {"rms_norm_eps": None}, "'rms_norm_eps' in config.json must be a number, got None"),
        ("llama", {"tie_word_embeddings": "yes"}, "'tie_word_embeddings' in config.json must be true or false, got 'yes'"),
        (
            "llama",
            {"rope_scaling": {"rope_type": "linear", "factor": "much"}},
            "'factor' in rope_scaling of config.json must be a number or null, got 'much'",
        ),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": None}}, "field of the wrong kind, needed for rotary"),
        ("mistral", {"layer_types": ["full_attention"]}, "layer_types must name all 4 layers, got 1"),
        ("mistral", {"sliding_window": None, "layer_types": ["sliding_attention"] * 4}, "window must say"),
        (
            "qwen3",
            {"use_sliding_window": True, "layer_types": ["chunked_attention"] * 4},
            "layer_types holds 'chunked_attention'",
        ),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
        ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
    ],
)
def test_what_is_refused_is_named(model_type: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        config(model_type, **fields)
    assert "\n" not in str(error.value)


def test_missing_field_is_named() -> None:
    with pytest.raises(ConfigError, match="lacks 'num_hidden_layers', which a llama checkpoint needs"):
        FAMILIES["llama"].to_config({key: value for key, value in SIZES.items() if key != "num_hidden_layers"})


def test_multimodal_config_gives_its_text_part() -> None:
    outer = {"text_config": {**SIZES, "sliding_window": 7}, "vision_config": {"hidden_size": 3}, "eos_token_id": [1, 106]}
    cfg = FAMILIES["gemma3"].to_config(outer)
    assert cfg.d_model == 24 and cfg.window == 7 and cfg.eos_token_ids == (1, 106)


def test_published_multimodal_files_leave_much_out() -> None:
    """The 4B model's text part states six fields; the rest are the family's defaults."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    cfg = FAMILIES["gemma3"].to_config({"text_config": text})
    assert (cfg.n_heads, cfg.n_kv_heads, cfg.d_head, cfg.d_vocab, cfg.n_ctx) == (8, 4, 256, 262_208, 131_072)
    assert cfg.rotary == RotaryConfig(base=1_000_000.0, scaling="linear", factor=8.0)


def test_learned_positions_cannot_be_extended() -> None:
    cfg = config("gpt2")
    assert with_context(cfg, 8).n_ctx == 8 and with_context(cfg, None) is cfg
    with pytest.raises(ConfigError, match="n_ctx=33 is more than the 32 positions"):
        with_context(cfg, 33)
    assert with_context(config("llama"), 4096).n_ctx == 4096
