"""Hooks: every name and shape of the vocabulary, the two ways to edit, what an edit reaches, and what is left behind."""

from __future__ import annotations

import copy

import pytest
import torch

from models import HookError
from models.hooks import AXES, act_name
from tests.models.variants import VARIANTS, tiny_model, tiny_tokens

EVERY = pytest.mark.parametrize("variant", VARIANTS)


def axis_sizes(cfg, batch: int, pos: int) -> dict[str, int]:
    sizes = {"batch": batch, "pos": pos, "query": pos, "key": pos, "head": cfg.n_heads, "kv_head": cfg.n_kv_heads}
    return sizes | {"d_model": cfg.d_model, "d_head": cfg.d_head, "d_mlp": cfg.d_mlp, "1": 1}


def expected_names(cfg) -> set[str]:
    """The vocabulary written out by hand, per kind of model."""
    block = ["hook_resid_pre", "hook_q_input", "hook_k_input", "hook_v_input", "hook_attn_out", "hook_resid_post"]
    block += [f"attn.hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern", "z", "result")]
    norms = ["ln1"] + (["ln1_post"] if cfg.block == "sandwich" else [])
    if cfg.positions == "rotary":
        block += ["attn.hook_rot_q", "attn.hook_rot_k"]
    if not cfg.attn_only:
        block += ["hook_mlp_in", "hook_mlp_out", "mlp.hook_pre", "mlp.hook_post"]
        block += ["mlp.hook_pre_linear"] if cfg.gated_mlp else []
        block += [] if cfg.block == "parallel" else ["hook_resid_mid"]
        norms += ["ln2"] + (["ln2_post"] if cfg.block == "sandwich" else [])
    if cfg.norm != "none":
        block += [f"{norm}.hook_{part}" for norm in norms for part in ("scale", "normalized")]
    names = {f"blocks.{layer}.{name}" for layer in range(cfg.n_layers) for name in block} | {"hook_embed"}
    names |= {"hook_pos_embed"} if cfg.positions == "learned" else set()
    return names | ({"ln_final.hook_scale", "ln_final.hook_normalized"} if cfg.final_norm and cfg.norm != "none" else set())


@EVERY
def test_every_hook_exists_and_has_the_stated_shape(variant):
    model = tiny_model(variant)
    logits, cache = model.run_with_cache(tiny_tokens(), names="*")
    assert set(model.hook_names) == set(cache) == expected_names(model.cfg)
    assert logits.shape == (2, 9, model.cfg.d_vocab_out)
    sizes = axis_sizes(model.cfg, 2, 9)
    for name, tensor in cache.items():
        kind = model.hook_point(name).kind
        assert tensor.shape == tuple(sizes[axis] for axis in AXES[kind].split()), name


@EVERY
def test_reading_changes_nothing(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    plain = model(tokens)
    cached, _ = model.run_with_cache(tokens, names="*")
    assert (plain - cached).abs().max() < 1e-5 * plain.abs().max()


def test_hooks_on_every_point_but_the_split_inputs_change_nothing():
    for variant in VARIANTS:
        model, tokens = tiny_model(variant), tiny_tokens()
        names = [name for name in model.hook_names if not name.endswith("_input")]
        hooked = model.run_with_hooks(tokens, fwd_hooks=[(names, lambda tensor, hook: tensor * 1)])
        assert (model(tokens) - hooked).abs().max() < 1e-5 * hooked.abs().max()


@EVERY
def test_softmax_of_the_scores_is_the_pattern(variant):
    model = tiny_model(variant)
    _, cache = model.run_with_cache(tiny_tokens())
    for layer in range(model.n_layers):
        assert torch.allclose(cache["attn_scores", layer].softmax(-1), cache["pattern", layer], atol=1e-6)
        assert torch.allclose(cache["pattern", layer].sum(-1), torch.ones(()), atol=1e-6)


@EVERY
def test_scores_are_the_scaled_capped_masked_dot_products(variant):
    model = tiny_model(variant)
    cfg = model.cfg
    _, cache = model.run_with_cache(tiny_tokens())
    distance = torch.arange(9)[:, None] - torch.arange(9)[None, :]
    for layer in range(model.n_layers):
        q, k = (cache[name, layer] if (name, layer) in cache else cache[name[4:], layer] for name in ("rot_q", "rot_k"))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(cfg.group_size, 2)) * cfg.attn_scale
        if cfg.attn_softcap:
            scores = cfg.attn_softcap * torch.tanh(scores / cfg.attn_softcap)
        visible = distance >= 0 if cfg.causal else distance > -99
        if cfg.layer_types[layer] == "sliding":
            visible = visible & (distance.abs() < cfg.window)
        scores = torch.where(visible, scores, torch.tensor(float("-inf")))
        assert torch.allclose(scores, cache["attn_scores", layer], atol=1e-5)


@EVERY
@pytest.mark.parametrize("in_place", [True, False])
def test_a_pattern_set_to_the_first_key_makes_z_its_value_and_changes_the_logits(variant, in_place):
    model, tokens = tiny_model(variant), tiny_tokens()
    layer, head = 1, 2

    def first_key(pattern, hook):
        pattern = pattern if in_place else pattern.clone()
        pattern[:, head] = 0
        pattern[:, head, :, 0] = 1
        return None if in_place else pattern

    with model.hooks([(f"blocks.{layer}.attn.hook_pattern", first_key)]):
        logits, cache = model.run_with_cache(tokens)
    value = cache["v", layer][:, :1, head // model.cfg.group_size]
    assert torch.allclose(cache["z", layer][:, :, head], value.expand(-1, 9, -1), atol=1e-6)
    assert (logits - model(tokens)).abs().max() > 1e-3
    clean = model.run_with_cache(tokens)[1]
    others = [each for each in range(4) if each != head]
    assert torch.allclose(cache["z", layer][:, :, others], clean["z", layer][:, :, others], atol=1e-6)
    assert torch.equal(cache["resid_pre", layer], clean["resid_pre", layer])


@EVERY
def test_every_edit_changes_the_logits_in_place_and_returned_alike(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    plain = model(tokens)
    for name in model.hook_names:
        noise = torch.Generator()

        def returned(tensor, hook, noise=noise):
            return tensor + 0.3 * torch.rand(tensor.shape, generator=noise.manual_seed(3))

        def in_place(tensor, hook, noise=noise):
            tensor += 0.3 * torch.rand(tensor.shape, generator=noise.manual_seed(3))

        first = model.run_with_hooks(tokens, fwd_hooks=[(name, returned)])
        second = model.run_with_hooks(tokens, fwd_hooks=[(name, in_place)])
        assert torch.equal(first, second), name
        assert (first - plain).abs().max() > 1e-4, name


def test_split_inputs_reach_their_own_head_only():
    model, tokens = tiny_model("llama"), tiny_tokens()
    clean = model.run_with_cache(tokens)[1]
    for name, own in (("q", "q"), ("k", "k"), ("v", "v")):

        def zero_second_head(tensor, hook):
            tensor[:, :, 1] = 0

        with model.hooks([(f"blocks.1.hook_{name}_input", zero_second_head)]):
            edited = model.run_with_cache(tokens)[1]
        changed = (edited[own, 1] - clean[own, 1]).abs().amax((0, 1, 3)) > 1e-5
        assert changed.nonzero().flatten().tolist() == [1]
        for other in {"q", "k", "v"} - {own}:
            assert torch.allclose(edited[other, 1], clean[other, 1], atol=1e-6)
        assert torch.equal(edited["resid_pre", 1], clean["resid_pre", 1])


def test_mlp_in_reaches_the_mlp_and_not_the_stream():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    with model.hooks([("blocks.1.hook_mlp_in", lambda tensor, hook: tensor * 2 + 1)]):
        edited = model.run_with_cache(tokens)[1]
    assert torch.equal(edited["resid_mid", 1], model.run_with_cache(tokens)[1]["resid_mid", 1])
    assert torch.allclose(edited["resid_post", 1], edited["resid_mid", 1] + edited["mlp_out", 1])


def test_edited_norm_and_edited_split_input_together_are_refused():
    model = tiny_model("gpt2")
    both = [("blocks.0.ln1.hook_scale", lambda tensor, hook: tensor), ("blocks.0.hook_q_input", lambda tensor, hook: tensor)]
    with pytest.raises(HookError, match=r"blocks.0.hook_q_input.*norm"):
        model.run_with_hooks(tiny_tokens(), fwd_hooks=both)


@EVERY
def test_results_sum_to_what_attention_writes(variant):
    model = tiny_model(variant)
    layer = model.n_layers - 1
    _, cache = model.run_with_cache(
        tiny_tokens(),
        names=["*.hook_z", "*.hook_result", "*.hook_attn_out", "*.ln1_post.hook_scale"]
        if model.cfg.block == "sandwich"
        else ["*.hook_z", "*.hook_result", "*.hook_attn_out"],
    )
    block = model.blocks[layer]
    result = torch.einsum("bphe,hed->bphd", cache["z", layer], block.attn.W_O)
    assert torch.allclose(result, cache["result", layer], atol=1e-6)
    out = result.sum(2) + (0 if block.attn.b_O is None else block.attn.b_O)
    if model.cfg.block == "sandwich":
        out = out / cache["scale", layer, "ln1_post"] * block.ln1_post.gain
    assert torch.allclose(out, cache["attn_out", layer], atol=1e-5)


def test_hooked_z_zeroed_equals_output_weights_zeroed():
    model, tokens = tiny_model("llama"), tiny_tokens()

    def zero(z, hook):
        z[:, :, 3] = 0

    hooked = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", zero)])
    with torch.no_grad():
        model.blocks[0].attn.W_O[3] = 0
    assert torch.allclose(hooked, model(tokens), atol=1e-6)


def test_backward_hooks_see_and_replace_gradients():
    model, tokens = tiny_model("llama"), tiny_tokens()
    seen = {}
    with model.hooks(bwd_hooks=[("blocks.*.attn.hook_z", lambda gradient, hook: seen.__setitem__(hook.name, gradient.clone()))]):
        model(tokens)[:, -1].logsumexp(-1).sum().backward()
    logits, cache = model.run_with_cache(tokens, names="blocks.*.attn.hook_z", detach=False)
    wanted = torch.autograd.grad(logits[:, -1].logsumexp(-1).sum(), list(cache.values()))
    assert list(seen) == list(cache)[::-1]
    for name, gradient in zip(cache, wanted, strict=True):
        assert torch.allclose(seen[name], gradient, atol=1e-6)
    model.zero_grad()
    with model.hooks(bwd_hooks=[("blocks.2.hook_resid_pre", lambda gradient, hook: torch.zeros_like(gradient))]):
        model(tokens).sum().backward()
    assert model.embed.weight.grad.abs().max() == 0


def test_backward_hooks_work_on_frozen_weights_and_say_when_they_cannot():
    model, tokens, seen = tiny_model("llama").requires_grad_(False), tiny_tokens(), []
    hook = ("blocks.0.hook_resid_pre", lambda gradient, hook: seen.append(gradient.shape))
    with model.hooks(bwd_hooks=[hook]):
        model(tokens).sum().backward()
    assert seen == [(2, 9, 32)]
    with torch.no_grad(), pytest.raises(HookError, match=r"blocks.0.hook_resid_pre.*no_grad"):
        model.run_with_hooks(tokens, bwd_hooks=[hook])


@EVERY
def test_padded_rows_are_empty_and_finite_forward_and_backward(variant):
    model = tiny_model(variant)
    tokens = torch.cat((tiny_tokens(length=3, seed=5), tiny_tokens()), 1)
    mask = torch.arange(12)[None] >= torch.tensor([3, 0])[:, None]
    for names in ("blocks.*.attn.hook_pattern", "blocks.*.attn.hook_z"):
        logits, cache = model.run_with_cache(tokens, attention_mask=mask, names=names)
        for tensor in cache.values():
            padded = tensor[0, :, :3] if "pattern" in names else tensor[0, :3]
            assert padded.abs().max() == 0
            assert tensor.isfinite().all()
        logits.sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


def test_wrong_returns_are_named():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    with pytest.raises(HookError, match=r"blocks.0.attn.hook_z' returned shape \(2, 9, 4\), wanted \(2, 9, 4, 8\)"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: z[..., 0])])
    with pytest.raises(HookError, match="returned float; return a tensor or None"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: 1.0)])


def test_unknown_names_list_near_matches():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    with pytest.raises(HookError, match=r"blocks.0.attn.hook_patern'.*blocks.0.attn.hook_pattern"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_patern", lambda *_: None)])
    with pytest.raises(HookError, match="no hook is called"):
        model.run_with_cache(tokens, names="blocks.*.attn.hook_sink")
    with pytest.raises(HookError, match="selects none"):
        model.run_with_cache(tokens, names=lambda name: False)
    with pytest.raises(HookError, match="pair"):
        model.run_with_hooks(tokens, fwd_hooks=["blocks.0.attn.hook_z"])


def test_hooks_never_outlive_their_context():
    model, tokens = tiny_model("gpt2"), tiny_tokens()

    def fail(tensor, hook):
        raise RuntimeError("stop")

    failing, watching = [("blocks.1.attn.hook_z", fail)], [("blocks.0.attn.hook_z", lambda gradient, hook: None)]
    with pytest.raises(RuntimeError, match="stop"):
        model.run_with_hooks(tokens, fwd_hooks=failing, bwd_hooks=watching)
    with pytest.raises(RuntimeError, match="stop"), model.hooks(failing):
        model.run_with_cache(tokens)
    with pytest.raises(HookError), model.hooks([failing[0], ("no.such.hook", fail)]):
        pass
    assert not any(model.hook_point(name).is_hooked for name in model.hook_names)
    model.add_hook("blocks.1.attn.hook_z", fail)
    model.reset_hooks()
    model(tokens)


def test_contexts_nest_and_the_users_hooks_survive_a_cached_run():
    model, tokens, order = tiny_model("gpt2"), tiny_tokens(), []
    name = "blocks.0.attn.hook_z"
    with model.hooks([(name, lambda z, hook: order.append("outer"))]):
        with model.hooks([(name, lambda z, hook: order.append("inner"))]):
            model.run_with_cache(tokens)
        model.run_with_cache(tokens, names=name)
    model(tokens)
    assert order == ["outer", "inner", "outer"]


def test_cached_tensors_are_snapshots():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    clean = model.run_with_cache(tokens)[1]

    def spoil(tensor, hook):
        tensor.zero_()

    with model.hooks([("blocks.1.hook_resid_pre", spoil)]):
        edited = model.run_with_cache(tokens)[1]
    assert torch.equal(edited["resid_post", 0], clean["resid_post", 0])
    assert edited["resid_pre", 1].abs().max() == 0


def test_nothing_that_others_do_reaches_a_snapshot():
    model, tokens, buffer = tiny_model("gpt2"), tiny_tokens(), torch.zeros(2, 9, 32)
    clean = model.run_with_cache(tokens)[1]
    logits, cache = model.run_with_cache(tokens)
    cache["resid_post", 0].zero_()
    cache["pattern", 0].mul_(0)
    assert torch.equal(cache["resid_pre", 1], clean["resid_pre", 1])
    logits.sum().backward()
    resid = model(tokens, stop_at_layer=1).detach()
    stopped, cache = model.run_with_cache(resid, start_at_layer=1, stop_at_layer=2)
    resid.zero_()
    stopped.detach().zero_()
    assert torch.allclose(cache["resid_pre", 1], clean["resid_pre", 1], atol=1e-5)
    assert torch.allclose(cache["resid_post", 1], clean["resid_post", 1], atol=1e-5)
    with model.hooks([("hook_embed", lambda tensor, hook: buffer)]):
        cache = model.run_with_cache(tokens, names="hook_embed")[1]
    buffer.fill_(1)
    assert cache["embed"].abs().max() == 0


def test_watching_the_split_inputs_leaves_an_edited_norm_edited():
    model, tokens = tiny_model("llama"), tiny_tokens()
    with model.hooks([("blocks.0.ln1.hook_normalized", lambda tensor, hook: tensor * 2)]):
        edited = model(tokens)
        for names in ("blocks.0.hook_q_input", "*"):
            watched, cache = model.run_with_cache(tokens, names=names)
            assert torch.allclose(watched, edited, atol=1e-5) and cache["blocks.0.hook_q_input"].shape == (2, 9, 4, 32)
        with pytest.raises(HookError, match="followed by gradients"):
            model.run_with_cache(tokens, names="blocks.0.hook_q_input", detach=False)


def test_gradients_reach_cached_split_inputs():
    model, tokens = tiny_model("llama"), tiny_tokens()
    logits, cache = model.run_with_cache(tokens, names="blocks.1.hook_*_input", detach=False)
    gradients = torch.autograd.grad(logits[:, -1].logsumexp(-1).sum(), list(cache.values()))
    assert all(gradient.abs().amax((0, 1, 3)).min() > 0 for gradient in gradients)


def test_a_copied_model_has_its_own_hooks():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    plain = model(tokens)
    with model.hooks([("blocks.0.attn.hook_z", lambda z, hook: z * 0)]):
        copied = copy.deepcopy(model)
    assert torch.equal(copied(tokens), plain)
    with copied.hooks([("blocks.0.attn.hook_z", lambda z, hook: z * 0)]):
        assert not torch.equal(copied(tokens), plain) and torch.equal(model(tokens), plain)


def test_caching_a_part_that_is_skipped_is_refused():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    with pytest.raises(HookError, match="'ln_final.hook_scale' has nothing to cache"):
        model.run_with_cache(tokens, names="ln_final.hook_scale", stop_at_layer=1)
    assert "blocks.2.attn.hook_z" not in model.run_with_cache(tokens, names="*.hook_z", stop_at_layer=1)[1]


def test_an_in_place_change_of_shape_is_named():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    with pytest.raises(HookError, match=r"hook_z' returned shape \(2, 4, 9, 8\), wanted \(2, 9, 4, 8\)"):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: (z.transpose_(1, 2), None)[1])])


def test_names_select_by_string_glob_list_and_predicate():
    model, tokens = tiny_model("gpt2"), tiny_tokens()
    run = lambda names: list(model.run_with_cache(tokens, names=names)[1])  # noqa: E731
    assert run("hook_embed") == ["hook_embed"]
    assert run("blocks.*.attn.hook_z") == [f"blocks.{layer}.attn.hook_z" for layer in range(3)]
    assert run(["blocks.2.hook_resid_post", "hook_embed"]) == ["hook_embed", "blocks.2.hook_resid_post"]
    assert run(lambda name: name.endswith("hook_scale")) == [name for name in model.hook_names if name.endswith("hook_scale")]
    everything = run(None)
    assert "blocks.0.attn.hook_pattern" in everything and "blocks.0.attn.hook_result" not in everything


def test_short_names():
    assert act_name("pattern", 3) == "blocks.3.attn.hook_pattern"
    assert act_name("resid_post", -1, n_layers=4) == "blocks.3.hook_resid_post"
    assert act_name("post", 0) == "blocks.0.mlp.hook_post"
    assert act_name("scale", 0, "ln1") == "blocks.0.ln1.hook_scale"
    assert act_name("embed") == "hook_embed"
    _, cache = tiny_model("gpt2").run_with_cache(tiny_tokens())
    assert cache["scale", "ln_final"].shape == cache["ln_final.hook_scale"].shape == (2, 9, 1)
    assert ("pattern", 7) not in cache
    with pytest.raises(KeyError, match="blocks.7.attn.hook_pattern"):
        cache["pattern", 7]


def test_fused_attention_runs_unless_this_layers_scores_or_pattern_are_hooked(monkeypatch):
    from models.kernels import fused

    model, tokens, calls = tiny_model("llama"), tiny_tokens(), []
    original = fused.attend
    monkeypatch.setattr(fused, "attend", lambda *args: calls.append(1) or original(*args))
    model(tokens)
    assert len(calls) == 3
    calls.clear()
    model.run_with_cache(tokens, names="blocks.1.attn.hook_pattern")
    assert len(calls) == 2
