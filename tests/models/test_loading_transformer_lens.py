"""`HookedTransformer.from_transformer_lens`: every option against the classic model's equations, and answer keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from models import CheckpointError, ConfigError, HookedTransformer, load_model
from models.loading.transformer_lens import check_fields, check_state
from tests.oracles.transformer_lens_reference import logits, random_state

BASE = {
    "n_layers": 2,
    "d_model": 24,
    "d_head": 8,
    "n_heads": 3,
    "d_mlp": 40,
    "d_vocab": 30,
    "n_ctx": 32,
    "act_fn": "gelu",
    "normalization_type": "LN",
}
ROTARY = {"positional_embedding_type": "rotary"}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rms": {"normalization_type": "RMS", "final_rms": True},
    "folded layer norm": {"normalization_type": "LNPre"},
    "folded rms": {"normalization_type": "RMSPre"},
    "no norm": {"normalization_type": None},
    "epsilon": {"eps": 0.1},
    "rotary": ROTARY,
    "partial rotary": {**ROTARY, "rotary_dim": 4, "rotary_base": 100},
    "rotary, adjacent pairs": {**ROTARY, "rotary_dim": 6, "rotary_adjacent_pairs": True},
    "rotary by parts": {**ROTARY, "use_NTK_by_parts_rope": True, "NTK_original_ctx_len": 24, "rotary_base": 100},
    "grouped": {"n_heads": 6, "n_key_value_heads": 2},
    "attention-only": {"attn_only": True},
    "gated": {"gated_mlp": True, "act_fn": "silu"},
    "bidirectional": {"attention_dir": "bidirectional"},
    "other outputs": {"d_vocab_out": 7},
    "scale": {"attn_scale": 3.0},
    "no scale": {"use_attn_scale": False},
    "local": {"use_local_attn": True, "window_size": 5, "attn_types": ["local", "global"]},
    "parallel": {"parallel_attn_mlp": True},
    "qk-norm": {"use_qk_norm": True, "normalization_type": "RMS"},
    "sandwich, capped": {
        "normalization_type": "RMSPre",
        "use_normalization_before_and_after": True,
        "attn_scores_soft_cap": 2.0,
        "output_logits_soft_cap": 3.0,
    },
    "gelu_new": {"act_fn": "gelu_new"},
    "gelu_fast": {"act_fn": "gelu_fast"},
    "relu": {"act_fn": "relu"},
}


@pytest.mark.parametrize("name", list(OPTIONS))
def test_logits(name: str) -> None:
    config = {**BASE, **OPTIONS[name]}
    state = random_state(config)
    tokens = torch.randint(30, (2, 20), generator=torch.Generator().manual_seed(1))
    wanted = logits(state, config, tokens)
    model = HookedTransformer.from_transformer_lens(state, config)
    with torch.no_grad():
        got = model(tokens)
    assert got.shape == wanted.shape
    assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_classic_views_are_the_given_tensors() -> None:
    config = {**BASE, "n_heads": 6, "n_key_value_heads": 2}
    state = random_state(config)
    model = HookedTransformer.from_transformer_lens(state, config)
    attn, mlp = model.blocks[1].attn, model.blocks[1].mlp
    for view, name in {"W_Q": "W_Q", "W_K": "_W_K", "W_V": "_W_V", "W_O": "W_O", "b_Q": "b_Q", "b_V": "_b_V"}.items():
        assert torch.equal(getattr(attn, view), state[f"blocks.1.attn.{name}"]), view
    assert torch.equal(mlp.W_in, state["blocks.1.mlp.W_in"]) and torch.equal(mlp.W_out, state["blocks.1.mlp.W_out"])
    assert torch.equal(model.W_E, state["embed.W_E"]) and torch.equal(model.W_U, state["unembed.W_U"])
    assert torch.equal(model.W_pos, state["pos_embed.W_pos"])


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("num_experts", 4, "num_experts=4 is not supported"),
        ("post_embedding_ln", True, "post_embedding_ln=True is not supported"),
        ("scale_attn_by_inverse_layer_idx", True, "scale_attn_by_inverse_layer_idx=True is not supported"),
        ("load_in_4bit", True, "load_in_4bit=True is not supported"),
        ("positional_embedding_type", "alibi", "positional_embedding_type='alibi' is not supported"),
        ("positional_embedding_type", "shortformer", "positional_embedding_type='shortformer' is not supported"),
        ("normalization_type", "L2", "normalization_type='L2' is not supported"),
        ("act_fn", "solu_ln", "activation 'solu_ln' is not supported"),
        ("attention_dir", "up", "attention_dir='up' is not supported"),
        ("use_qk_norm", True, "use_qk_norm=True"),
        ("final_rms", True, "final_rms=True"),
        ("n_head", 3, r"field 'n_head' is not known \(did you mean 'n_heads'"),
        (5, 3, "field 5 is not known"),
        ("n_layers", "2", "'n_layers' in the config must be a positive whole number, got '2'"),
        ("n_layers", 10**9, "states 1000000000 layers, but the checkpoint has only"),
        ("d_head", 0, "'d_head' in the config must be a positive whole number, got 0"),
        ("eps", "a", "'eps' in the config must be a number, got 'a'"),
        ("act_fn", ["a"], r"activation \['a'\] is not supported"),
        ("d_vocab_out", None, "'d_vocab_out' in the config must be a whole number, got None"),
        ("rotary_dim", "a", "'rotary_dim' in the config must be a positive whole number or null, got 'a'"),
        ("attn_scale", 0, "'attn_scale' in the config must be a number other than 0, got 0"),
        ("gated_mlp", "false", "'gated_mlp' in the config must be true or false or null, got 'false'"),
        ("attn_types", 3, "'attn_types' in the config must be a list of names or null, got 3"),
    ],
)
def test_unsupported_fields_are_named(field: Any, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        HookedTransformer.from_transformer_lens(random_state(BASE), {**BASE, field: value})


def test_fields_without_effect_are_passed_over() -> None:
    full = {
        **BASE,
        "seed": 3,
        "device": "cpu",
        "dtype": torch.float32,
        "init_mode": "gpt2",
        "use_attn_result": True,
        "n_params": 9,
    }
    assert HookedTransformer.from_transformer_lens(random_state(BASE), full).cfg.n_heads == 3


def test_missing_fields_are_named() -> None:
    with pytest.raises(ConfigError, match="the config lacks d_head, d_vocab"):
        HookedTransformer.from_transformer_lens(
            {}, {key: value for key, value in BASE.items() if key not in ("d_head", "d_vocab")}
        )


def test_missing_unexpected_and_misshapen_tensors_are_named() -> None:
    state = random_state(BASE)
    few = {name: tensor for name, tensor in state.items() if name != "blocks.1.attn.b_V"}
    with pytest.raises(CheckpointError, match="lacks tensor 'blocks.1.attn.b_V'"):
        HookedTransformer.from_transformer_lens(few, BASE)
    with pytest.raises(CheckpointError, match="holds tensor 'blocks.0.mlp.W_gate'"):
        HookedTransformer.from_transformer_lens({**state, "blocks.0.mlp.W_gate": torch.ones(24, 40)}, BASE)
    with pytest.raises(CheckpointError, match=r"'blocks.0.attn.W_O'.*has shape \[3, 24, 8\].*\[3, 8, 24\]"):
        HookedTransformer.from_transformer_lens({**state, "blocks.0.attn.W_O": torch.ones(3, 24, 8)}, BASE)
    gated = {**BASE, "gated_mlp": True}
    with pytest.raises(CheckpointError, match="b_in"):
        HookedTransformer.from_transformer_lens({**random_state(gated), "blocks.0.mlp.b_in": torch.ones(3)}, gated)


@pytest.mark.parametrize("state, said", [(None, "got NoneType"), ({"embed.W_E": [1.0]}, "got list for 'embed.W_E'")])
def test_state_that_holds_no_tensors(state: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match=f"the state dict must map names to tensors, {said}"):
        check_state(state)


def test_config_that_is_no_dict() -> None:
    with pytest.raises(ConfigError, match="the config must be a dict of fields and values, got NoneType"):
        check_fields(None)


def test_sizes_beyond_any_file() -> None:
    with pytest.raises(CheckpointError, match=r"states d_vocab=10+, d_model=24, a matrix too large for any file"):
        HookedTransformer.from_transformer_lens(random_state(BASE), {**BASE, "d_vocab": 10**18})


@pytest.mark.parametrize("unembedding", ["shared", "part", "of its own"])
def test_parameters_share_no_memory(unembedding: str, tmp_path: Path) -> None:
    """Whatever the tensors given share; so an edit of one parameter leaves the others alone, and the model can be saved."""
    config = {**BASE, "gated_mlp": True, "act_fn": "silu"}
    state = random_state(config)
    if unembedding == "shared":
        state["unembed.W_U"] = state["embed.W_E"].T
    elif unembedding == "part":
        whole = torch.randn(31, 24)
        state["embed.W_E"], state["unembed.W_U"] = whole[:-1], whole[1:].T
    model = HookedTransformer.from_transformer_lens(state, config)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for place, (name, parameter) in enumerate(model.named_parameters()):
        parameter.data.fill_(place)
        before[name].fill_(place)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert all(torch.equal(parameter, before[name]) for name, parameter in again.named_parameters())


def answer_key(folder: Path, kind: str, name: str) -> tuple[HookedTransformer, dict[str, torch.Tensor]]:
    tensors = load_file(folder / kind / f"{name}.safetensors")
    config = json.loads((folder / kind / f"{name}.json").read_text())["config"]
    state = {key.removeprefix("W."): tensor for key, tensor in tensors.items() if key.startswith("W.")}
    return HookedTransformer.from_transformer_lens(state, config), tensors


def test_sorted_list_answer_key(shared_data: Path) -> None:
    model, key = answer_key(shared_data, "trained_toys", "sorted_list")
    with torch.no_grad():
        assert (model(key["tokens"]) - key["logits"]).abs().max() < 1e-4


def test_brackets_answer_key(shared_data: Path) -> None:
    """A bidirectional classifier that is read at its first position, with padding masked."""
    model, key = answer_key(shared_data, "trained_toys", "brackets")
    with torch.no_grad():
        got = model(key["tokens"], attention_mask=key["attention_mask"])[:, 0]
    assert (got - key["logits"]).abs().max() < 1e-4
    assert torch.equal(got.argmax(-1), key["labels"])


@pytest.mark.parametrize("name", ["gpt_like", "llama_like_gqa"])
def test_edge_score_models_answer_keys(shared_data: Path, name: str) -> None:
    model, key = answer_key(shared_data, "edge_scores", name)
    with torch.no_grad():
        for side in ("clean", "corrupt"):
            assert (model(key[side]) - key[f"logits_{side}"]).abs().max() < 1e-4
