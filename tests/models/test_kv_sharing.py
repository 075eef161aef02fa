"""Layers that share keys and values, and blocks with token embeddings of their own."""

from __future__ import annotations

import pytest
import torch

from models import ConfigError, HookedTransformer, InputError, KVCache
from tests.models.variants import tiny_config, tiny_model, tiny_tokens


def test_a_reading_layer_is_the_formula():
    """Its queries meet the storing layer's rotated keys and values."""
    model = tiny_model("shared_kv", dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens())
    k, v = cache["rot_k", 0].repeat_interleave(2, 2), cache["v", 0].repeat_interleave(2, 2)
    for layer in (1, 2):
        scores = torch.einsum("bqhd,bkhd->bhqk", cache["rot_q", layer], k) * 8**-0.5
        hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
        pattern = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        assert torch.allclose(pattern, cache["pattern", layer], atol=1e-12)
        assert torch.allclose(torch.einsum("bhqk,bkhd->bqhd", pattern, v), cache["z", layer], atol=1e-12)


@pytest.mark.parametrize("hook", ["k", "v", "rot_k"])
def test_a_patch_on_the_storing_layer_reaches_every_reader(hook):
    model, tokens = tiny_model("shared_kv"), tiny_tokens()
    _, clean = model.run_with_cache(tokens)
    # What the storing layer itself writes is put back, so that only the readers' own use of the patch is left.
    edits = [
        (f"blocks.0.attn.hook_{hook}", lambda tensor, hook: tensor * 2),
        ("blocks.0.attn.hook_z", lambda tensor, hook: clean["z", 0]),
        ("blocks.1.attn.hook_q", lambda tensor, hook: clean["q", 1]),
        ("blocks.2.attn.hook_q", lambda tensor, hook: clean["q", 2]),
    ]
    with model.hooks(edits):
        _, cache = model.run_with_cache(tokens)
    for layer in (1, 2):
        assert (cache["z", layer] - clean["z", layer]).abs().max() > 1e-2


def test_hooks_of_keys_and_values_are_on_the_storing_layer_only():
    names = tiny_model("gemma4").hook_names
    for hook in ("attn.hook_k", "attn.hook_v", "attn.hook_rot_k", "hook_k_input", "hook_v_input"):
        assert f"blocks.0.{hook}" in names and f"blocks.2.{hook}" not in names
    assert not any(
        ".attn.k" in name or ".attn.v" in name for name, _ in tiny_model("gemma4").blocks[2].named_parameters("blocks.2")
    )


def test_a_reader_sees_the_whole_past_with_a_cache_that_holds_it_once():
    model, tokens = tiny_model("gemma4"), tiny_tokens(length=12)
    whole, cache = model(tokens), KVCache(model.cfg)
    steps = torch.cat([model(part, cache=cache) for part in tokens.split((5, 1, 1, 5), 1)], 1)
    assert (steps - whole).abs().max() < 1e-5 * whole.abs().max()
    assert cache.n_bytes == 2 * 12 * 4 * 2 * (2 * 8 + 1 * 12)


def test_values_are_normed_and_may_be_those_of_the_keys():
    model = tiny_model("gemma4", dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens())
    for layer in (0, 1):
        x, attn = cache["normalized", layer, "ln1"], model.blocks[layer].attn
        raw = torch.einsum("bpm,hme->bphe", x, attn.W_V) + attn.b_V
        wanted = raw / (raw.pow(2).mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt()
        assert torch.allclose(wanted, cache["v", layer], atol=1e-12)
        assert not attn.linear_reads
    assert torch.equal(model.blocks[1].attn.W_V, model.blocks[1].attn.W_K)


def test_the_third_part_of_a_block_is_the_formula():
    model, tokens = tiny_model("gemma4", dtype=torch.float64), tiny_tokens()
    _, cache = model.run_with_cache(tokens)
    own, width = model.layer_embeddings, 5
    projected = (cache["hook_embed"] @ own.proj.weight.T * 32**-0.5).unflatten(-1, (3, width))
    projected = projected / (projected.pow(2).mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt() * own.norm_weight
    embeddings = (projected + own.table.weight[tokens].unflatten(-1, (3, width)) * width**0.5) * 0.5**0.5
    for layer, block in enumerate(model.blocks):
        at = f"blocks.{layer}."
        assert torch.allclose(cache[at + "hook_layer_embed"], embeddings[:, :, layer], atol=1e-12)
        late, read = cache[at + "hook_resid_late"], block.layer_embed
        assert torch.allclose(late, cache[at + "hook_resid_mid"] + cache[at + "hook_mlp_out"], atol=1e-12)
        gate = torch.nn.functional.gelu(late @ read.gate.weight.T, approximate="tanh")
        out = (gate * embeddings[:, :, layer]) @ read.out.weight.T
        out = out / (out.pow(2).mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt() * read.norm.gain
        assert torch.allclose(out, cache[at + "hook_layer_out"], atol=1e-10)
        assert torch.allclose((late + out) * block.scalar, cache[at + "hook_resid_post"], atol=1e-10)


def test_a_residual_stream_alone_is_refused():
    model, tokens = tiny_model("gemma4"), tiny_tokens()
    resid = model(tokens, stop_at_layer=1)
    with pytest.raises(InputError, match="leave out start_at_layer"):
        model(resid, start_at_layer=0)


def _sharing(**changes):
    by_type = {"store": {"mixer": "kv_store"}, "read": {"mixer": "kv_reader", "kv_from": 0}}
    for kind, fields in changes.items():
        by_type[kind] = by_type.get(kind, {}) | fields
    return {"by_type": by_type}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (_sharing(read={"kv_from": 2}), "kv_from of layer 1 must be an earlier layer"),
        (_sharing(store={"mixer": "attention"}), "mixer='kv_store', got 0"),
        (_sharing(read={"d_head": 4}), "d_head of layer 1 must be that of layer 0"),
        ({"d_layer_embed": 4}, "d_layer_embed needs block='sandwich_scaled'"),
    ],
)
def test_clear_messages_about_configs(changes, message):
    with pytest.raises(ConfigError, match=message):
        HookedTransformer(tiny_config("shared_kv", **changes))
