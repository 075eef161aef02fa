"""The forward pass against a second formulation, in parts and in one, with caches, padding, and bad input."""

from __future__ import annotations

import math

import pytest
import torch

from models import HookError, InputError, KVCache, RotaryConfig
from models.positions.rotary import SCALINGS, rotary_tables, rotate
from models.ungroup import PLAIN_KEYS
from tests.models.variants import VARIANTS, tiny_config, tiny_model, tiny_tokens

EVERY = pytest.mark.parametrize("variant", VARIANTS)
CAUSAL = pytest.mark.parametrize("variant", [name for name in VARIANTS if tiny_config(name).causal])
GENERATIVE = pytest.mark.parametrize(
    "variant", [name for name in VARIANTS if tiny_config(name).causal and tiny_config(name).head != "none"]
)


@EVERY
def test_the_fused_path_equals_the_dense_one(variant):
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens(length=20)
    dense, _ = model.run_with_cache(tokens, names="blocks.*.attn.hook_pattern")
    assert (model(tokens) - dense).abs().max() < 1e-12


@EVERY
def test_stopping_and_starting_at_a_layer(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    ran = []
    if model.streams is not None:
        with pytest.raises(InputError, match="must be 0 or 3 in this model, got None and 2: .* several streams"):
            model(tokens, stop_at_layer=2)
        return
    resid = model(tokens, stop_at_layer=2)
    if (source := model.cfg.for_layer(2).kv_from) >= 0:
        with pytest.raises(InputError, match=f"start_at_layer must be at most {source}"):
            model(resid, start_at_layer=2)
        return
    logits = model.run_with_hooks(
        resid, start_at_layer=-1, fwd_hooks=[("blocks.2.hook_resid_pre", lambda x, hook: ran.append(hook.layer))]
    )
    assert torch.equal(logits, model(tokens)) and ran == [2]
    _, cache = model.run_with_cache(resid, start_at_layer=2)
    assert not any(name.startswith(("blocks.0", "blocks.1", "hook_embed")) for name in cache)
    assert torch.equal(model.unembed_resid(model(tokens, stop_at_layer=3)), logits)


def test_a_hook_on_a_skipped_layer_is_refused():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    with pytest.raises(HookError, match="blocks.2.attn.hook_z.*cannot run"):
        model.run_with_hooks(tokens, stop_at_layer=1, fwd_hooks=[("blocks.2.attn.hook_z", lambda z, hook: z)])
    with pytest.raises(HookError, match="ln_final.hook_normalized.*cannot run"):
        model.run_with_hooks(tokens, stop_at_layer=3, fwd_hooks=[("ln_final.hook_normalized", lambda x, hook: x)])
    with pytest.raises(HookError, match="hook_embed.*cannot run"):
        model.run_with_hooks(model(tokens, stop_at_layer=0), start_at_layer=0, fwd_hooks=[("hook_embed", lambda x, hook: x)])
    with pytest.raises(HookError, match="hook_embed.*cannot run"):
        model.run_with_hooks(model(tokens, stop_at_layer=1), start_at_layer=1, fwd_hooks=[("hook_embed", lambda x, hook: x)])
    with pytest.raises(ValueError, match="start_at_layer=5"):
        model(tokens, start_at_layer=5)


@EVERY
def test_padding_on_either_side_changes_no_real_position(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    plain = model(tokens)
    filler = tiny_tokens(length=3, seed=8)
    for side, real in (("left", slice(3, 12)), ("right", slice(0, 9))):
        padded = torch.cat((filler, tokens) if side == "left" else (tokens, filler), 1)
        mask = torch.zeros(2, 12)
        mask[:, real] = 1
        logits, cache = model.run_with_cache(padded, attention_mask=mask)
        assert (logits[:, real] - plain).abs().max() < 1e-5 * plain.abs().max()
        if ("pattern", 0) in cache:
            assert cache["pattern", 0][..., mask[0] == 0].abs().max() == 0
        assert (model(padded, attention_mask=mask.long())[:, real] - plain).abs().max() < 1e-5 * plain.abs().max()


@CAUSAL
def test_a_cache_changes_nothing(variant):
    if variant == "dynamic":
        pytest.skip("its angles depend on the length so far; the next test is about it")
    model, tokens = tiny_model(variant), tiny_tokens(length=14)
    whole = model(tokens)
    for chunks in ([6, 1, 1, 1, 5], [1] * 14):
        cache, parts = KVCache(model.cfg), []
        for part in tokens.split(chunks, 1):
            parts.append(model(part, cache=cache))
        assert (torch.cat(parts, 1) - whole).abs().max() < 1e-5 * whole.abs().max()
        if variant in ("gpt2", "llama", "mqa"):
            assert cache.n_bytes == 2 * 3 * 2 * 14 * model.cfg.n_kv_heads * 8 * 4


def test_a_cache_is_refused_where_it_cannot_be_right():
    model, cache = tiny_model("dynamic"), KVCache(tiny_config("dynamic"))
    model(tiny_tokens(length=6), cache=cache)
    with pytest.raises(InputError, match="7 tokens exceed the 6 for which a cache stays right"):
        model(tiny_tokens(length=1), cache=cache)
    model, cache = tiny_model("gpt2"), KVCache(tiny_config("gpt2"))
    model(tiny_tokens(length=3), cache=cache)
    for batch in (1, 3):
        with pytest.raises(InputError, match=f"{batch} rows, but the cache holds 2"):
            model(tiny_tokens(batch=batch), cache=cache)
    with pytest.raises(InputError, match="bidirectional"):
        tiny_model("encoder")(tiny_tokens(), cache=KVCache(tiny_config("encoder")))
    encoder = tiny_model("encoder")
    assert torch.equal(encoder.generate(tiny_tokens(), 6), encoder.generate(tiny_tokens(), 6, use_cache=False))


@pytest.mark.parametrize("first", [0, 4])
def test_a_cache_survives_a_call_that_fails(first):
    model, tokens = tiny_model("llama"), tiny_tokens()
    cache = KVCache(model.cfg)
    if first:
        model(tokens[:, :first], cache=cache)
    with pytest.raises(HookError, match="wanted"):
        model.run_with_hooks(tokens[:, first:], cache=cache, fwd_hooks=[("blocks.1.attn.hook_z", lambda z, hook: z[0])])
    with pytest.raises(InputError, match="outside the vocabulary"):
        model(torch.tensor([[99], [99]]), cache=cache)
    assert cache.length == first
    assert torch.allclose(model(tokens[:, first:], cache=cache), model(tokens)[:, first:], atol=1e-5)


def test_ids_come_as_lists_arrays_and_small_integers():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    wanted = model(tokens)
    for same in (tokens.tolist(), tokens.numpy(), tokens.int(), tokens.to(torch.uint8)):
        assert torch.equal(model(same), wanted)
    assert torch.allclose(model(tokens[0].tolist(), attention_mask=[1] * 9), wanted[:1], atol=1e-5)
    assert torch.isfinite(model(tokens.int(), return_type="loss"))


@GENERATIVE
@pytest.mark.parametrize("pad", [0, 3])
def test_greedy_decoding_is_the_same_with_and_without_cache(variant, pad):
    model, tokens = tiny_model(variant), tiny_tokens()
    padded = torch.cat((tiny_tokens(length=pad, seed=4), tokens), 1) if pad else tokens
    mask = torch.arange(9 + pad)[None].expand(2, -1) >= pad
    cached = model.generate(padded, 20, attention_mask=mask)
    assert torch.equal(cached, model.generate(padded, 20, attention_mask=mask, use_cache=False))
    if model.cfg.d_vocab_out == model.cfg.d_vocab:
        assert torch.equal(cached[:, pad:], model.generate(tokens, 20))


def test_hooks_see_the_new_tokens_while_decoding():
    model, shapes = tiny_model("llama"), []
    with model.hooks([("blocks.0.attn.hook_pattern", lambda pattern, hook: shapes.append(tuple(pattern.shape)))]):
        model.generate(tiny_tokens(), 3)
    assert shapes == [(2, 4, 9, 9), (2, 4, 1, 10), (2, 4, 1, 11)]


def test_sampling_follows_its_seed_and_its_filters():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    state = torch.random.get_rng_state()
    draws = [model.generate(tokens, 12, do_sample=True, temperature=3.0, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert torch.equal(state, torch.random.get_rng_state())
    greedy = model.generate(tokens, 12)
    assert torch.equal(greedy, model.generate(tokens, 12, do_sample=True, top_k=1, seed=5))
    assert torch.equal(greedy, model.generate(tokens, 12, do_sample=True, top_p=1e-9, seed=5))


def test_sampled_frequencies_are_the_softmax():
    from models.generate import sample

    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(20_000, -1)
    counts = torch.bincount(sample(logits, torch.Generator().manual_seed(0)), minlength=4) / 20_000
    assert (counts - logits[0].softmax(-1)).abs().max() < 0.02
    kept = torch.bincount(sample(logits, torch.Generator().manual_seed(0), top_p=0.8), minlength=4) / 20_000
    assert kept[0] == kept[3] == 0 and abs(kept[2] - 1 / (1 + math.exp(-1))) < 0.02


def test_generation_stops_at_eos():
    model, tokens = tiny_model("gpt2"), tiny_tokens(batch=1)
    third = int(model.generate(tokens, 3)[0, -1])
    stopping = tiny_model("gpt2", eos_token_ids=(third,))
    assert stopping.generate(tokens, 20, stop_at_eos=True).shape[1] <= 12
    assert stopping.generate(tokens, 20).shape[1] == 29


@EVERY
def test_ungrouping_changes_no_logit_and_shares_the_rest(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    layers = [model.cfg.for_layer(layer) for layer in range(model.n_layers)]
    if any(cfg.group_size > 1 and cfg.mixer not in PLAIN_KEYS for cfg in layers):
        with pytest.raises(HookError, match="plain keys and values"):
            model.ungrouped()
        return
    flat = model.ungrouped()
    assert all(flat.cfg.for_layer(layer).group_size == 1 for layer in range(model.n_layers))
    assert (flat(tokens) - model(tokens)).abs().max() < 1e-5 * model(tokens).abs().max()
    assert flat.embed.weight is model.embed.weight and flat.blocks[0].attn.o.weight is model.blocks[0].attn.o.weight


def test_ungrouping_a_hooked_model_is_refused():
    model = tiny_model("llama")
    with model.hooks([("blocks.1.attn.hook_z", lambda z, hook: z * 0)]), pytest.raises(HookError, match="blocks.1.attn.hook_z"):
        model.ungrouped()


def test_layouts_agree_up_to_the_order_of_dimensions():
    x = torch.randn(2, 7, 3, 8, generator=torch.Generator().manual_seed(0))
    tables = rotary_tables(RotaryConfig(), 8, torch.arange(7)[None], 7, torch.float32)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    assert torch.allclose(rotate(x, tables, "interleaved")[..., order], rotate(x[..., order], tables, "half"), atol=1e-6)
    assert not torch.allclose(rotate(x, tables, "interleaved"), rotate(x, tables, "half"), atol=1e-2)


def test_rotation_is_relative_and_keeps_norms():
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 1, 16, generator=generator, dtype=torch.float64).expand(1, 40, 1, 16) for _ in range(2))
    for scaling in SCALINGS:
        divisors = {"short_factor": (2.0,) * 8, "long_factor": (3.0,) * 8} if scaling == "longrope" else {}
        rotary = RotaryConfig(scaling=scaling, factor=4.0, original_n_ctx=32, **divisors)
        tables = rotary_tables(rotary, 16, torch.arange(40)[None], 40, torch.float64)
        dots = torch.einsum("bqhd,bkhd->qk", rotate(q, tables, "half"), rotate(k, tables, "half"))
        for offset in (0, 1, 17):
            assert dots.diagonal(-offset).std(correction=0) < 1e-10
        lengths = {"yarn": 0.1 * math.log(4) + 1, "longrope": math.sqrt(1 + math.log(4) / math.log(32))}
        factor = lengths.get(scaling, 1.0)
        assert torch.allclose(rotate(q, tables, "half").norm(dim=-1), factor * q.norm(dim=-1))


def test_dynamic_scaling_is_plain_up_to_the_trained_length():
    rotary = RotaryConfig(scaling="dynamic", factor=2.0, original_n_ctx=16)
    positions = torch.arange(16)[None]
    plain = rotary_tables(RotaryConfig(), 8, positions, 16, torch.float64)
    assert torch.equal(rotary_tables(rotary, 8, positions, 16, torch.float64).cos, plain.cos)
    assert not torch.equal(rotary_tables(rotary, 8, positions, 32, torch.float64).cos, plain.cos)


def test_the_loss_is_the_mean_cross_entropy_of_real_pairs():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    logits, loss = model(tokens, return_type="both")
    wanted = -logits[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None]).mean()
    assert torch.allclose(loss, wanted)
    padded = torch.cat((tiny_tokens(length=2, seed=3), tokens), 1)
    assert torch.allclose(
        model(padded, attention_mask=torch.arange(11)[None].expand(2, -1) >= 2, return_type="loss"), wanted, atol=1e-6
    )


def test_half_precision_runs_and_stays_close():
    model, tokens = tiny_model("gemma3"), tiny_tokens()
    full = model(tokens)
    half = model.to(torch.bfloat16)(tokens)
    assert half.dtype == torch.bfloat16 and (half.float() - full).abs().max() < 0.1 * full.abs().max()


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (torch.tensor([[1, 50]]), {}, "token id 50 is outside the vocabulary, 0 to 49"),
        (torch.tensor([[-1, 3]]), {}, "token id -1 is outside"),
        (torch.zeros(1, 0, dtype=torch.long), {}, "the prompt is empty"),
        (torch.zeros(1, 41, dtype=torch.long), {}, "41 tokens, more than the context of 40"),
        (torch.zeros(1, 2, 3, dtype=torch.long), {}, r"tokens must be \[batch, pos\], got shape \(1, 2, 3\)"),
        (torch.zeros(1, 2, dtype=torch.bool), {}, "whole numbers, got torch.bool"),
        ([[1, 2], [3]], {}, "lists of equal length"),
        ("text", {}, "no tokeniser"),
        (torch.zeros(1, 3, dtype=torch.long), {"attention_mask": torch.ones(1, 4)}, r"shape \(1, 4\), wanted \(1, 3\)"),
        (torch.zeros(1, 3, dtype=torch.long), {"attention_mask": torch.tensor([[0, 2, 1]])}, "attention_mask must hold 1"),
        (torch.zeros(1, 3, dtype=torch.long), {"attention_mask": torch.zeros(1, 3)}, "row 0 of attention_mask is all padding"),
        (torch.zeros(1, 3, dtype=torch.long), {"prepend_bos": True}, "prepend_bos applies to text"),
        (torch.zeros(1, 3, 5), {"start_at_layer": 1}, r"residual stream \[batch, pos, 32\] of torch.float32, got \(1, 3, 5\)"),
        (torch.zeros(1, 3, 32).double(), {"start_at_layer": 1}, "of torch.float32, got .* torch.float64"),
        (torch.zeros(1, 41, 32), {"start_at_layer": 1}, "41 positions; this model takes 1 to 40"),
        (torch.zeros(1, 3, 32), {}, "whole numbers, got torch.float32"),
        ([1.5, 2.5], {}, "whole numbers, got torch.float"),
        ([True, False], {}, "whole numbers, got torch.bool"),
        (torch.zeros(1, 1, dtype=torch.long), {"return_type": "loss"}, "at least 2 tokens"),
        (torch.zeros(1, 3, dtype=torch.long), {"return_type": "loss", "stop_at_layer": 1}, "needs the whole model"),
        (torch.zeros(1, 3, dtype=torch.long), {"return_type": "losses"}, "return_type must be"),
        (torch.zeros(1, 3, dtype=torch.long), {"cache": KVCache(tiny_config("llama"))}, "made for another model"),
        (torch.zeros(1, 3, dtype=torch.long), {"cache": KVCache(tiny_config("gpt2")), "stop_at_layer": 1}, "keys of every layer"),
    ],
)
def test_bad_input_gets_one_sentence(tokens, options, message):
    with pytest.raises(InputError, match=message):
        tiny_model("gpt2")(tokens, **options)


@CAUSAL
def test_an_edit_of_scores_cannot_show_hidden_keys(variant):
    model, tokens = tiny_model(variant), tiny_tokens(length=12)
    mask = torch.arange(12)[None].expand(2, -1) >= torch.tensor([[3], [0]])
    names = [name for name in model.hook_names if name.endswith("hook_attn_scores")]
    if not names:
        pytest.skip("no scores")
    with model.hooks([(names, lambda scores, hook: torch.ones_like(scores))]):
        cache = model.run_with_cache(tokens, attention_mask=mask, names="*.hook_pattern")[1]
    for name in names:
        pattern = cache[name.replace("attn_scores", "pattern")]
        assert pattern.triu(1).abs().max() == 0 and pattern[0, :, :, :3].abs().max() == 0


def test_a_left_padded_row_may_be_all_padding_in_a_part_of_the_prompt():
    model, tokens = tiny_model("llama"), tiny_tokens()
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :5] = False
    cache = KVCache(model.cfg)
    parts = [model(tokens[:, i : i + 3], attention_mask=mask[:, i : i + 3], cache=cache) for i in (0, 3, 6)]
    wanted = model(tokens, attention_mask=mask)
    assert torch.allclose(torch.cat(parts, 1)[mask], wanted[mask], atol=1e-5)


def test_what_a_call_says_of_its_tokens_is_checked():
    model, tokens = tiny_model("llama"), tiny_tokens()
    with pytest.raises(InputError, match="prefix has 5 tokens, of which this call with a cache brings 3"):
        model(tokens[:, :3], prefix=5, cache=KVCache(model.cfg))
    with pytest.raises(InputError, match=r"visible has shape \(2, 3, 9, 9\), wanted .* 1 or 4, 9, 9"):
        model(tokens, visible=torch.ones(2, 3, 9, 9, dtype=torch.bool))
    with pytest.raises(InputError, match=r"wanted .* = \[1 or 2, 1, 9, 9\]"):
        tiny_model("native_sparse")(tokens, visible=torch.ones(2, 4, 9, 9, dtype=torch.bool))
    for mask in ("x", [[1], [1, 2]]):
        with pytest.raises(InputError, match="attention_mask must be a tensor or nested lists"):
            model(tokens, attention_mask=mask)
    with pytest.raises(InputError, match="no such pair"):
        model(tokens, documents=torch.arange(9).expand(2, 9), return_type="loss")


def test_hooks_of_every_embedding_run_where_the_embedding_does():
    model, tokens = tiny_model("bert"), tiny_tokens()
    resid = model(tokens, stop_at_layer=1)
    for name in ("hook_token_type_embed", "embed_norm.hook_normalized"):
        hook = (name, lambda tensor, hook: tensor + torch.rand(tensor.shape, generator=torch.Generator().manual_seed(0)))
        with pytest.raises(HookError, match="cannot run"):
            model.run_with_hooks(resid, start_at_layer=1, fwd_hooks=[hook])
        assert not torch.allclose(model.run_with_hooks(tokens, stop_at_layer=1, fwd_hooks=[hook]), resid)


@pytest.mark.parametrize("variant", ["block_mixture", "indexed_latent", "native_sparse", "gate"])
def test_a_gate_shows_its_effective_pattern_on_every_mixer_with_a_pattern(variant):
    model = tiny_model(variant, out_steps=("gate",))
    cache = model.run_with_cache(tiny_tokens())[1]
    assert torch.allclose(
        cache["effective_pattern", 1], cache["pattern", 1] * cache["gate", 1].mean(-1).transpose(1, 2)[..., None]
    )


@CAUSAL
def test_a_refused_call_leaves_a_cache_as_it_was(variant):
    if variant in ("dynamic", "longrope"):
        pytest.skip("a cache is refused past the trained length")
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens(length=12)
    cache = KVCache(model.cfg)
    parts = [model(tokens[:, :5], cache=cache)]
    for wrong in ({"tokens": torch.full((2, 2), 999)}, {"tokens": tokens[:, 5:], "attention_mask": torch.ones(2, 3)}):
        with pytest.raises(InputError):
            model(**wrong, cache=cache)
    parts.append(model(tokens[:, 5:], cache=cache))
    assert torch.allclose(torch.cat(parts, 1), model(tokens), atol=1e-10)


@EVERY
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_with_every_hook(variant, dtype):
    model = tiny_model(variant).to(dtype)
    cache = model.run_with_cache(tiny_tokens(batch=1, length=6), names="*")[1]
    assert all(tensor.dtype.is_floating_point for tensor in cache.values())
