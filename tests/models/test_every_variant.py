"""What every variant promises: hooks with the stated names and axes, patterns that are what they say, edits that count, sums.

The tests walk `VARIANTS`, and one of them the registries: a variant that no tiny model uses fails it.
"""

from __future__ import annotations

import pytest
import torch

from models import HookError
from models.config.names import NAMES, PART_NAMES
from models.hooks import AXES
from models.register import REGISTRIES
from tests.models.axis_sizes import axis_sizes
from tests.models.variants import VARIANTS, tiny_config, tiny_model, tiny_tokens

EVERY = pytest.mark.parametrize("variant", VARIANTS)
TOKENS = 9
RANKING = ("attn.hook_indexer_scores", "attn.hook_block_scores")
"""Only the order of these matters, which small edits may leave as it is."""


def layers_with(model, hook: str) -> list[int]:
    return [layer for layer in range(model.n_layers) if f"blocks.{layer}.{hook}" in model.hook_names]


def values_by_row(cache, layer: int, cfg) -> torch.Tensor:
    """The values that each query's weights apply to, [batch, query or 1, key, kv_head, d_value]: global rows have their own."""
    v = cache["v", layer][:, None]
    if ("v_global", layer) not in cache:
        return v
    is_global = torch.arange(TOKENS) < cfg.sparse.n_global
    return torch.where(is_global[None, :, None, None, None], cache["v_global", layer][:, None], v)


def expected_names(model) -> set[str]:
    """The hooks every model has, written out by hand from its config and from what its mixers read."""
    cfg, names = model.cfg, {"hook_embed"}

    def norms(each, *wanted: str) -> list[str]:
        return [f"{name}.hook_{part}" for name in wanted for part in ("scale", "normalized")] if each.norm != "none" else []

    for layer in range(cfg.n_layers):
        each, readers = cfg.for_layer(layer), model.blocks[layer].attn.readers
        block = ["hook_resid_pre", "hook_attn_out", "hook_resid_post", "attn.hook_z", "attn.hook_result"]
        block += [f"hook_{reader}_input" for reader in readers] or ["hook_mixer_in"]
        has_ln1, posts = each.block not in ("output_norm",) and each.attn_norm, each.block in ("sandwich", "output_norm")
        block += norms(each, *(["ln1"] if has_ln1 else []), *(["ln1_post"] if posts else []))
        if not each.attn_only:
            block += ["hook_mlp_in", "hook_mlp_out"] + ([] if each.block.startswith("parallel") else ["hook_resid_mid"])
            has_ln2 = each.block not in ("output_norm", "parallel_shared")
            block += norms(each, *(["ln2"] if has_ln2 else []), *(["ln2_post"] if posts else []))
            block += {"plain": ["mlp.hook_pre", "mlp.hook_post"]}.get(each.mlp, [])
            block += ["mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post"] if each.mlp == "gated" else []
        if each.mixer == "attention":
            block += [f"attn.hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern")]
            block += ["attn.hook_rot_q", "attn.hook_rot_k"] if each.qk_steps else []
        names |= {f"blocks.{layer}.{name}" for name in block}
    names |= {"hook_pos_embed"} if cfg.positions in ("learned", "sinusoidal") else set()
    names |= {"hook_token_type_embed"} if cfg.n_token_types else set()
    names |= set(norms(cfg, *(["embed_norm"] if cfg.embed_norm else []), *(["ln_final"] if cfg.final_norm else [])))
    return names | (set(norms(cfg, "head_norm")) if cfg.head == "mlm" else set())


def test_every_registered_name_is_used_by_some_variant():
    used = {field: set() for field in REGISTRIES}
    for variant in VARIANTS:
        cfg = tiny_config(variant)
        for each in (cfg.for_layer(layer) for layer in range(cfg.n_layers)):
            for field, names in used.items():
                value = getattr(each if field in NAMES else each.experts, field, ())
                names |= set(value) if isinstance(value, tuple) else {value}
    for field, registry in REGISTRIES.items():
        assert set(registry) == set((NAMES | PART_NAMES)[field]), field
        assert set(registry) <= used[field], f"{field}: no tiny model in tests/models uses {sorted(set(registry) - used[field])}"


@EVERY
def test_every_hook_exists_and_has_the_stated_shape(variant):
    model = tiny_model(variant)
    out, cache = model.run_with_cache(tiny_tokens(), names="*")
    assert expected_names(model) <= set(model.hook_names)
    assert set(cache) == set(model.hook_names)
    assert out.shape == (2, TOKENS, model.cfg.d_model if model.cfg.head == "none" else model.cfg.d_vocab_out)
    for name, tensor in cache.items():
        point = model.hook_point(name)
        cfg = model.cfg if point.layer is None else model.cfg.for_layer(point.layer)
        sizes = axis_sizes(cfg, batch=2, pos=TOKENS)
        assert tensor.shape == tuple(sizes[axis] for axis in AXES[point.kind].split()), name


@EVERY
def test_reading_changes_nothing(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    plain = model(tokens)
    cached, _ = model.run_with_cache(tokens, names="*")
    assert (plain - cached).abs().max() < 1e-5 * plain.abs().max()


@EVERY
def test_hooks_on_every_point_but_the_split_inputs_change_nothing(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    # An input and its norm cannot both be edited; where attention and MLP share a norm, the MLP's is such an input too.
    apart = ("_input", "hook_mlp_in") if model.cfg.block == "parallel_shared" else ("_input",)
    names = [name for name in model.hook_names if not name.endswith(apart) and not model.hook_point(name).read_only]
    hooked = model.run_with_hooks(tokens, fwd_hooks=[(names, lambda tensor, hook: tensor * 1)])
    assert (model(tokens) - hooked).abs().max() < 1e-5 * hooked.abs().max()


@EVERY
def test_the_normaliser_of_the_scores_is_the_pattern(variant):
    model = tiny_model(variant)
    _, cache = model.run_with_cache(tiny_tokens())
    for layer in layers_with(model, "attn.hook_attn_scores"):
        scores, pattern, cfg = cache["attn_scores", layer], cache["pattern", layer], model.cfg.for_layer(layer)
        assert torch.allclose(model.blocks[layer].attn.normaliser(scores), pattern, atol=1e-6)
        if cfg.normaliser == "softmax" and not model.blocks[layer].attn.signed_pattern:
            assert torch.allclose(scores.softmax(-1), pattern, atol=1e-6)
            assert torch.allclose(pattern.sum(-1), torch.ones(()), atol=1e-6)


@EVERY
def test_no_weight_on_later_keys(variant):
    model = tiny_model(variant)
    if not model.cfg.causal:
        pytest.skip("bidirectional")
    _, cache = model.run_with_cache(tiny_tokens())
    for layer in layers_with(model, "attn.hook_pattern"):
        assert cache["pattern", layer].triu(1).abs().max() == 0


@EVERY
def test_z_is_the_pattern_times_the_values(variant):
    model = tiny_model(variant)
    _, cache = model.run_with_cache(tiny_tokens())
    for layer in layers_with(model, "attn.hook_pattern"):
        if not model.blocks[layer].attn.readers or "v" not in model.blocks[layer].attn.readers:
            continue
        pattern, v = cache["pattern", layer], values_by_row(cache, layer, model.cfg)
        v = v.repeat_interleave(pattern.shape[1] // v.shape[3], 3).expand(-1, TOKENS, -1, -1, -1)
        mixed = torch.einsum("bhqk,bqkhd->bqhd", pattern, v)
        wanted = cache["mixed", layer] if ("mixed", layer) in cache else cache["z", layer]
        assert torch.allclose(mixed, wanted, atol=1e-5)


@EVERY
@pytest.mark.parametrize("in_place", [True, False])
def test_an_edited_pattern_changes_z_of_its_head_and_the_logits_and_nothing_before(variant, in_place):
    model, tokens = tiny_model(variant), tiny_tokens()
    clean_logits, clean = model.run_with_cache(tokens)
    for layer in layers_with(model, "attn.hook_pattern"):
        cfg = model.cfg.for_layer(layer)
        head = cfg.n_heads - 1

        def first_key(pattern, hook, head=head):
            pattern = pattern if in_place else pattern.clone()
            pattern[:, head] = 0
            pattern[:, head, :, 0] = 1
            return None if in_place else pattern

        with model.hooks([(f"blocks.{layer}.attn.hook_pattern", first_key)]):
            logits, cache = model.run_with_cache(tokens)
        after = "mixed" if ("mixed", layer) in cache else "z"
        if ("v", layer) in cache:
            v = values_by_row(cache, layer, cfg)
            value = v[:, :, 0, head // (cfg.n_heads // v.shape[3])]
            assert torch.allclose(cache[after, layer][:, :, head], value.expand(-1, TOKENS, -1), atol=1e-6)
        assert (logits - clean_logits).abs().max() > 1e-4
        others = list(range(head))
        assert torch.allclose(cache[after, layer][:, :, others], clean[after, layer][:, :, others], atol=1e-6)
        assert torch.equal(cache["resid_pre", layer], clean["resid_pre", layer])


def names_in_one_layer_of_each_type(model) -> list[str]:
    """Hook names outside the blocks and in the first layer of each type, whose other layers run the same code."""
    layers = {None} | {model.cfg.layer_types.index(kind) for kind in model.cfg.layer_types}
    return [name for name in model.hook_names if model.hook_point(name).layer in layers]


@EVERY
def test_every_edit_changes_the_output_in_place_and_returned_alike_or_is_refused(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    plain = model(tokens)
    for name in names_in_one_layer_of_each_type(model):
        noise = torch.Generator()

        def returned(tensor, hook, noise=noise):
            size = 30.0 if hook.kind in RANKING else 0.3
            return tensor + size * torch.rand(tensor.shape, generator=noise.manual_seed(3))

        def in_place(tensor, hook, noise=noise):
            size = 30.0 if hook.kind in RANKING else 0.3
            tensor += size * torch.rand(tensor.shape, generator=noise.manual_seed(3))

        if model.hook_point(name).read_only:
            for edit in (returned, in_place):
                with pytest.raises(HookError, match="cannot be edited"):
                    model.run_with_hooks(tokens, fwd_hooks=[(name, edit)])
            continue
        first = model.run_with_hooks(tokens, fwd_hooks=[(name, returned)])
        second = model.run_with_hooks(tokens, fwd_hooks=[(name, in_place)])
        assert torch.equal(first, second), name
        assert (first - plain).abs().max() > 1e-4, name


@EVERY
def test_results_sum_to_what_attention_writes(variant):
    model = tiny_model(variant)
    _, cache = model.run_with_cache(tiny_tokens(), names="*")
    for layer in range(model.n_layers):
        block = model.blocks[layer]
        result = torch.einsum("bphe,hed->bphd", cache["z", layer], block.attn.W_O)
        assert torch.allclose(result, cache["result", layer], atol=1e-5)
        out = result.sum(2) + (0 if block.attn.b_O is None else block.attn.b_O)
        if block.order.behind and block.cfg.norm != "none":
            out = block.ln1_post.centred(out) / cache["scale", layer, "ln1_post"] * block.ln1_post.gain
            out = out if block.ln1_post.bias is None else out + block.ln1_post.bias
        assert torch.allclose(out * block.cfg.residual_scale, cache["attn_out", layer], atol=1e-5)


@EVERY
def test_what_is_written_adds_up_to_the_residual_stream(variant):
    model = tiny_model(variant, dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens(), names="*")
    order, cfg = model.blocks[0].order, model.cfg
    if order.streams is not None:
        pytest.skip("several streams; see test_altup")
    stream = cache["resid_pre", 0]
    for layer in range(model.n_layers):
        has_mlp = ("mlp_out", layer) in cache
        if order.norms_first:
            stream = cache["normalized", layer, "ln1"] * cfg.attn_stream_scale
        stream = stream + cache["attn_out", layer]
        if order.rescales and has_mlp:
            assert torch.allclose(stream, cache["resid_mid", layer], atol=1e-10)
            norm, scale = ("ln2", cfg.mlp_stream_scale) if order.norms_first else ("ln1", 1.0)
            stream = cache["normalized", layer, norm] * scale
        for each in ("mlp_out", "layer_out"):
            stream = stream + (cache[each, layer] if (each, layer) in cache else 0)
        stream = stream * getattr(model.blocks[layer], "scalar", 1)
        assert torch.allclose(stream, cache["resid_post", layer], atol=1e-10)
        if order.rescales and not order.norms_first and cfg.norm != "none":
            stream = cache["normalized", layer, "ln2" if has_mlp else "ln1"]


@EVERY
def test_padded_rows_are_empty_and_finite_forward_and_backward(variant):
    model = tiny_model(variant)
    tokens = torch.cat((tiny_tokens(length=3, seed=5), tiny_tokens()), 1)
    mask = torch.arange(12)[None] >= torch.tensor([3, 0])[:, None]
    for kind in ("pattern", "z"):
        layers = layers_with(model, f"attn.hook_{kind}")
        names = [f"blocks.{layer}.attn.hook_{kind}" for layer in layers]
        if not names:
            continue
        logits, cache = model.run_with_cache(tokens, attention_mask=mask, names=names)
        for layer, tensor in zip(layers, cache.values(), strict=True):
            padded = tensor[0, :, :3] if kind == "pattern" else tensor[0, :3]
            if kind == "pattern" or not (model.cfg.for_layer(layer).out_steps or not model.blocks[layer].attn.readers):
                assert padded.abs().max() == 0
            assert tensor.isfinite().all()
        logits.sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
