"""Longformer's global tokens and BigBird's blocks: against Hugging Face, and what their hooks show."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from models import ConfigError, HookedTransformer, HookError, InputError, load_model
from tests.models.variants import tiny_model, tiny_tokens
from tests.oracles.cases_encoders import CASES, hf_encoder, hf_output
from tests.oracles.hf_models import Case, save_case
from tests.oracles.parity import relative_error
from tests.oracles.parity import tokens_and_mask as tokens_with

BATCH, LENGTH = 3, 25


def tokens_and_mask(side: str) -> tuple[torch.Tensor, torch.Tensor]:
    return tokens_with(side, LENGTH, (0, 5, 14), low=4)


def globals_of(mask: torch.Tensor) -> torch.Tensor:
    """A different number of global tokens in each row: 3, 1, none; one of them padding, which counts for nothing."""
    chosen = torch.zeros_like(mask)
    chosen[0, [0, 9, 24]] = 1
    chosen[1, [2, 12]] = 1
    return chosen


@pytest.fixture(scope="module", params=["longformer", "longformer, one window"])
def longformers(request, tmp_path_factory):
    pytest.importorskip("transformers")
    theirs = hf_encoder(CASES[request.param], head=True)
    folder = tmp_path_factory.mktemp("checkpoint")
    save_case(CASES[request.param], theirs, folder)
    return theirs, load_model(folder)


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("dense", [False, True])
def test_longformer_with_global_tokens(longformers, side, dense):
    theirs, ours = longformers
    tokens, mask = tokens_and_mask(side)
    chosen = globals_of(mask)
    wanted = hf_output(theirs, tokens, mask, global_attention_mask=chosen)
    names = "blocks.*.attn.hook_pattern" if dense else "blocks.*.hook_resid_pre"
    got, _ = ours.run_with_cache(tokens, names=names, attention_mask=mask, global_tokens=chosen)
    assert relative_error(got[mask.bool()], wanted[mask.bool()]) < 1e-5


def test_longformer_pattern(longformers):
    """Theirs: the band of each row, global columns and global rows apart. Ours: all of it in one [query, key]."""
    # In float64, in which only their softmax, always in float32, is off by 1e-7.
    theirs, ours = (copy.deepcopy(model).double() for model in longformers)
    tokens, mask = tokens_and_mask("none")
    chosen = globals_of(mask)
    with torch.no_grad():
        output = theirs(tokens, attention_mask=mask, global_attention_mask=chosen, output_attentions=True)
    _, cache = ours.run_with_cache(tokens, names="blocks.*.attn.hook_pattern", global_tokens=chosen)
    most = int(chosen.sum(1).max())
    for layer in range(ours.n_layers):
        band, rows = output.attentions[layer], output.global_attentions[layer]
        reach = ours.blocks[layer].cfg.window - 1
        wanted = torch.zeros(BATCH, 3, LENGTH, LENGTH, dtype=torch.float64)
        for batch in range(BATCH):
            places = chosen[batch].nonzero()[:, 0].tolist()
            for query in range(LENGTH):
                for offset in range(-reach, reach + 1):
                    if 0 <= query + offset < LENGTH:
                        wanted[batch, :, query, query + offset] = band[batch, :, query, most + reach + offset]
                for index, key in enumerate(places):
                    wanted[batch, :, query, key] = band[batch, :, query, index]
            for index, query in enumerate(places):
                wanted[batch, :, query] = rows[batch, :, :LENGTH, index]
        assert (cache["pattern", layer] - wanted).abs().max() < 1e-6


def test_global_rows_are_made_by_the_global_weights():
    model, tokens = tiny_model("longformer", dtype=torch.float64), tiny_tokens()
    _, cache = model.run_with_cache(tokens)
    attn, pattern = model.blocks[0].attn, cache["pattern", 0]
    x = cache["hook_resid_pre", 0]
    ordinary = torch.einsum("bhqk,bkhd->bqhd", pattern, cache["v", 0])
    special = torch.einsum("bhqk,bkhd->bqhd", pattern, attn.v_global(x).unflatten(-1, (4, 8)))
    z = cache["z", 0]
    assert (z[:, :2] - special[:, :2]).abs().max() < 1e-12 and (z[:, 2:] - ordinary[:, 2:]).abs().max() < 1e-12
    assert (pattern[:, :, 5, [2, 8]] == 0).all() and (pattern[:, :, 5, [0, 1, 3, 4, 5, 6, 7]] > 0).all()
    assert (pattern[:, :, 0] > 0).all()


def test_global_tokens_of_the_call_take_the_place_of_the_configured_ones():
    model, tokens = tiny_model("longformer"), tiny_tokens()
    chosen = torch.zeros(2, 9, dtype=torch.bool)
    chosen[:, 4] = True
    _, cache = model.run_with_cache(tokens, global_tokens=chosen, names="blocks.*.attn.hook_pattern")
    assert (cache["pattern", 0][:, :, 4] > 0).all() and (cache["pattern", 0][:, :, 0, 5:] == 0).all()


def test_hooks_on_global_weights_need_a_global_token():
    model, tokens = tiny_model("longformer"), tiny_tokens()
    none = torch.zeros(2, 9, dtype=torch.bool)
    with pytest.raises(HookError, match="no token is global"):
        model.run_with_hooks(tokens, global_tokens=none, fwd_hooks=[("blocks.1.attn.hook_k_global", lambda k, hook: k * 2)])


def test_sparse_variants_refuse_what_they_cannot_do():
    with pytest.raises(ConfigError, match="needs mask"):
        tiny_model("longformer", mask="full")
    with pytest.raises(ConfigError, match="causal=False"):
        tiny_model("big_bird", causal=True)(tiny_tokens())
    with pytest.raises(InputError, match="no layer of this model"):
        tiny_model("bert_tied")(tiny_tokens(), global_tokens=torch.zeros(2, 9, dtype=torch.long))
    with pytest.raises(InputError, match="documents"):
        tiny_model("big_bird")(tiny_tokens(), documents=torch.zeros(2, 9, dtype=torch.long))


def test_big_bird_rows_sum_to_one_and_count_block_0_twice():
    """A key whose block counts twice has twice the weight that its score alone would give it."""
    model, tokens = tiny_model("big_bird", dtype=torch.float64), tiny_tokens(length=12)
    _, cache = model.run_with_cache(tokens)
    pattern, q, k = cache["pattern", 0], cache["q", 0], cache["k", 0]
    assert (pattern.sum(-1) - 1).abs().max() < 1e-12
    weight = torch.einsum("bqhd,bkhd->bhqk", q, k).mul(model.cfg.attn_scale).exp()[:, :, 6]
    weight[..., 0] *= 2
    weight[..., [1, 2, 3, 4, 8, 9, 10]] = 0
    assert (pattern[:, :, 6] - weight / weight.sum(-1, keepdim=True)).abs().max() < 1e-12


@pytest.mark.parametrize("n_random, length", [(1, 24), (2, 24), (2, 23)])
def test_big_bird_in_training_draws_the_same_blocks(tmp_path, n_random, length):
    """Their training mode, without dropout, seeds each layer with its number."""
    pytest.importorskip("transformers")
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 2}
    case = Case("BigBirdConfig", {**CASES["big_bird"].options, **quiet, "num_random_blocks": n_random})
    theirs = hf_encoder(case, head=True)
    save_case(case, theirs, tmp_path)
    ours = load_model(tmp_path)
    seeded = {f"seed {layer}": {"sparse": dataclasses.replace(ours.cfg.sparse, seed=layer)} for layer in range(2)}
    drawn = HookedTransformer(ours.cfg.replace(layer_types=tuple(seeded), by_type=seeded))
    drawn.load_state_dict(ours.state_dict())
    tokens = torch.randint(4, 61, (2, length), generator=torch.Generator().manual_seed(2))
    state = np.random.get_state()
    try:
        wanted = theirs.train()(input_ids=tokens).logits
    finally:
        np.random.set_state(state)
    assert relative_error(drawn(tokens), wanted) < 1e-5
    assert relative_error(ours(tokens), wanted) > 1e-3


def test_longformer_needs_memory_linear_in_the_sequence():
    """No tensor of the forward pass has an entry for every query and key."""
    n = 2048
    model = tiny_model("longformer", n_ctx=n, n_layers=1, layer_types=("longformer",), by_type={})
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for each in out if isinstance(out, tuple | list) else (out,):
                largest = max(largest, each.numel() if isinstance(each, torch.Tensor) else 0)
            return out

    with torch.no_grad(), Watch():
        model(tiny_tokens(length=n)[:1])
    assert largest < n * n / 8
