"""Hooks: every name and shape of the vocabulary, the two ways to edit, what an edit reaches, and what is left behind."""

from __future__ import annotations

import copy

import pytest
import torch

from models import HookError
from models.hooks import act_name
from tests.models.variants import tiny_model, tiny_tokens


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
