"""Latent attention: its parts, its weights through the latents, and the keys that an indexer chooses."""

from __future__ import annotations

import pytest
import torch

from models import ConfigError, HookError
from models.config import LatentConfig, RotaryConfig, SparseConfig
from models.kernels import latent
from tests.models.variants import tiny_config, tiny_model, tiny_tokens

CONTENT = slice(0, 6)
ROTARY = slice(6, 8)


def rms(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def test_the_two_parts_of_the_scores_add_up_and_can_be_edited() -> None:
    model, tokens = tiny_model("latent"), tiny_tokens()
    _, cache = model.run_with_cache(tokens, names="*")
    content, rotary, scores = (cache[name, 1] for name in ("score_content", "score_rotary", "attn_scores"))
    seen = scores > float("-inf")
    assert torch.equal(seen, torch.ones(9, 9).tril().bool().expand(2, 4, 9, 9))
    assert torch.allclose((content + rotary)[seen], scores[seen], atol=1e-5)
    q, k = cache["rot_q", 1], cache["rot_k", 1]
    for part, dims in ((content, CONTENT), (rotary, ROTARY)):
        assert torch.allclose(part, torch.einsum("bqhd,bkhd->bhqk", q[..., dims], k[..., dims]) / 8**0.5, atol=1e-5)
    assert torch.equal(q[..., CONTENT], cache["q", 1][..., CONTENT]) and (k[..., ROTARY] == k[:, :, :1, ROTARY]).all()
    with model.hooks([("blocks.1.attn.hook_score_content", lambda part, hook: part * 0)]):
        pattern = model.run_with_cache(tokens)[1]["pattern", 1]
    assert torch.allclose(pattern, rotary.masked_fill(~seen, float("-inf")).softmax(-1), atol=1e-6)


def test_scores_by_part_are_made_only_on_request() -> None:
    _, cache = tiny_model("latent").run_with_cache(tiny_tokens())
    assert ("score_content", 0) not in cache and ("kv_latent", 0) in cache and ("pattern", 0) in cache


def test_weights_through_the_latents_give_queries_keys_and_values_up_to_the_norms() -> None:
    model = tiny_model("latent", dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens())
    attn, x = model.blocks[1].attn, cache["normalized", 1, "ln1"]
    q, k, v = (torch.einsum("bpd,hde->bphe", x, weight) for weight in (attn.W_Q, attn.W_K, attn.W_V))
    q_norm = rms(x @ attn.q_down.weight.T)[:, :, None]
    kv_norm = rms((x @ attn.kv_down.weight.T)[..., :10])[:, :, None]
    assert torch.allclose(q / q_norm, cache["q", 1], atol=1e-12)
    assert torch.allclose(v / kv_norm, cache["v", 1], atol=1e-12)
    assert torch.allclose(k[..., CONTENT] / kv_norm, cache["k", 1][..., CONTENT], atol=1e-12)
    assert torch.allclose(k[..., ROTARY], cache["k", 1][..., ROTARY], atol=1e-12)
    assert (attn.W_Q.shape, attn.W_V.shape, attn.W_O.shape) == ((4, 32, 8), (4, 32, 6), (4, 6, 32))
    full = tiny_model("latent_full_queries").blocks[0].attn
    assert torch.equal(full.W_Q[2], full.q_up.weight[16:24].T) and not hasattr(full, "hook_q_latent")


def test_z_is_that_of_the_absorbed_form() -> None:
    model = tiny_model("latent", dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens())
    attn, mask = model.blocks[1].attn, torch.ones(9, 9).tril().bool()[None, None]
    shared = cache["rot_k", 1][:, :, 0, ROTARY]
    z = latent.absorbed(cache["rot_q", 1], cache["kv_latent", 1], shared, attn.up_k, attn.up_v, mask, model.cfg.attn_scale)
    assert torch.allclose(z, cache["z", 1], atol=1e-12)


def test_an_edited_latent_reaches_keys_and_values_of_all_heads() -> None:
    model, tokens = tiny_model("latent"), tiny_tokens()
    _, clean = model.run_with_cache(tokens)

    def zero_token(tensor: torch.Tensor, hook: object) -> None:
        tensor[:, 4] = 0

    with model.hooks([("blocks.1.attn.hook_kv_latent", zero_token)]):
        _, cache = model.run_with_cache(tokens)
    assert cache["v", 1][:, 4].abs().max() == cache["k", 1][:, 4, :, CONTENT].abs().max() == 0
    assert torch.equal(cache["k", 1][..., ROTARY], clean["k", 1][..., ROTARY])
    assert torch.equal(cache["q", 1], clean["q", 1])


@pytest.mark.parametrize("variant", ["latent", "indexed_latent"])
@pytest.mark.parametrize("own", ["q", "k", "v"])
def test_split_inputs_reach_their_own_head_only(variant: str, own: str) -> None:
    model, tokens = tiny_model(variant), tiny_tokens()
    _, clean = model.run_with_cache(tokens)

    def zero_second_head(tensor: torch.Tensor, hook: object) -> None:
        tensor[:, :, 1] = 0

    with model.hooks([(f"blocks.1.hook_{own}_input", zero_second_head)]):
        _, edited = model.run_with_cache(tokens)
    for name in ("q", "k", "v", "z"):
        changed = (edited[name, 1] - clean[name, 1]).abs().amax((0, 1, 3)) > 1e-5
        assert changed.nonzero().flatten().tolist() == ([1] if name in (own, "z") else [])


def test_latents_cannot_be_edited_beside_split_inputs_of_their_layer() -> None:
    model, tokens = tiny_model("latent"), tiny_tokens()
    edit = lambda tensor, hook: tensor * 2  # noqa: E731
    for split, shared in (("q", "q_latent"), ("k", "kv_latent"), ("v", "kv_latent")):
        hooks = [(f"blocks.0.hook_{split}_input", edit), (f"blocks.0.attn.hook_{shared}", edit)]
        with pytest.raises(HookError, match=rf"blocks.0.attn.hook_{shared}' cannot be edited.*split input"):
            model.run_with_hooks(tokens, fwd_hooks=hooks)
    with model.hooks([("blocks.0.hook_k_input", edit)]), pytest.raises(HookError, match="hook_kv_latent' has nothing to cache"):
        model.run_with_cache(tokens, names="blocks.0.attn.hook_kv_latent")
    model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_q_input", edit), ("blocks.0.attn.hook_kv_latent", edit)])


def test_a_query_sees_the_keys_with_the_highest_indexer_scores() -> None:
    _, cache = tiny_model("indexed_latent").run_with_cache(tiny_tokens())
    for layer in range(3):
        scores, selection, pattern = (cache[name, layer] for name in ("indexer_scores", "selection", "pattern"))
        for row in range(9):
            best = scores[1, 0, row, : row + 1].topk(min(row + 1, 3)).indices
            wanted = torch.zeros(9).scatter(0, best, 1.0)
            assert torch.equal(selection[1, 0, row], wanted)
            assert torch.equal((pattern[1, :, row] > 0).float(), wanted.expand(4, -1))


def test_the_indexer_is_the_formula() -> None:
    model = tiny_model("indexed_latent", dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens())
    index, x = model.blocks[1].attn.indexer, cache["normalized", 1, "ln1"][0]

    def rotated(vector: torch.Tensor, position: int) -> torch.Tensor:
        angle = torch.tensor(float(position), dtype=torch.float64)
        first, second = vector[0] * angle.cos() - vector[1] * angle.sin(), vector[1] * angle.cos() + vector[0] * angle.sin()
        return torch.cat((first[None], second[None], vector[2:]))

    for query, key in ((8, 0), (5, 5), (7, 3)):
        queries = (index.q.weight @ cache["q_latent", 1][0, query]).view(8, 6)
        k = rotated(index.k_norm(index.k.weight @ x[key]), key)
        weights = index.weights.weight @ x[query] / (8 * 6) ** 0.5
        wanted = sum(weights[h] * max(rotated(queries[h], query) @ k, 0) for h in range(8))
        assert abs(cache["indexer_scores", 1][0, 0, query, key] - wanted) < 1e-12


def test_choosing_everything_is_latent_attention() -> None:
    sparse, tokens = tiny_model("indexed_latent"), tiny_tokens()
    everything = tiny_model("indexed_latent", sparse=SparseConfig(n_selected=99, index_heads=8, d_index=6))
    plain = tiny_model("latent", attn_softcap=4.0)
    plain.load_state_dict({name: tensor for name, tensor in sparse.state_dict().items() if ".indexer." not in name})
    assert torch.allclose(everything(tokens), plain(tokens), atol=1e-5)
    hook = [("blocks.*.attn.hook_selection", lambda selection, hook: torch.ones_like(selection))]
    assert torch.allclose(sparse.run_with_hooks(tokens, fwd_hooks=hook), plain(tokens), atol=1e-5)
    assert (sparse(tokens) - plain(tokens)).abs().max() > 1e-2


def test_a_selection_in_between_scales_weights_and_carries_gradients() -> None:
    model, tokens = tiny_model("indexed_latent_reused"), tiny_tokens()
    _, clean = model.run_with_cache(tokens)
    name = "blocks.0.attn.hook_selection"
    with model.hooks([(name, lambda selection, hook: selection * torch.linspace(0.2, 1, 9))]):
        _, cache = model.run_with_cache(tokens)
    wanted = clean["pattern", 0] * torch.linspace(0.2, 1, 9)
    assert torch.allclose(cache["pattern", 0], wanted / wanted.sum(-1, keepdim=True), atol=1e-6)
    seen = []
    with model.hooks(bwd_hooks=[(name, lambda gradient, hook: seen.append(gradient.clone()))]):
        model(tokens)[:, -1].logsumexp(-1).sum().backward()
    assert seen[0].isfinite().all() and seen[0][clean["selection", 0] > 0].abs().max() > 0
    with pytest.raises(HookError, match=r"no gradient reaches 'blocks.0.attn.hook_indexer_scores'"):
        model.run_with_hooks(tokens, bwd_hooks=[("blocks.0.attn.hook_indexer_scores", lambda gradient, hook: None)])


def test_a_reused_choice_is_that_of_the_layer_before_edits_included() -> None:
    model, tokens = tiny_model("indexed_latent_reused"), tiny_tokens()
    _, cache = model.run_with_cache(tokens)
    assert torch.equal(cache["selection", 1], cache["selection", 0])
    assert not torch.equal(cache["selection", 2], cache["selection", 0])
    assert model.blocks[1].attn.indexer is None and "blocks.1.attn.hook_indexer_scores" not in model.hook_names

    def own_token(selection: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.eye(9).expand_as(selection)

    with model.hooks([("blocks.0.attn.hook_selection", own_token)]):
        _, edited = model.run_with_cache(tokens)
    assert torch.allclose(edited["pattern", 1], torch.eye(9).expand(2, 4, 9, 9))
    with pytest.raises(HookError, match="layer 1 sees the keys that an earlier layer chose"):
        model(model(tokens, stop_at_layer=1), start_at_layer=1)


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("latent", {"latent": None}, "needs latent, a LatentConfig"),
        ("latent", {"n_kv_heads": 2}, "n_kv_heads=n_heads=4, got n_kv_heads=2"),
        ("latent", {"d_head": 2}, "latent.d_shared must be less than d_head=2, got 2"),
        ("latent", {"rotary": RotaryConfig(dim=4)}, "rotary.dim must be latent.d_shared=2"),
        ("indexed_latent", {"latent": LatentConfig(kv_rank=4, d_shared=2)}, "needs latent.q_rank"),
        ("indexed_latent", {"sparse": None}, "needs sparse.n_selected, a positive"),
        ("indexed_latent", {"sparse": SparseConfig(n_selected=2, d_index=4)}, "needs sparse.index_heads, a positive"),
        (
            "indexed_latent",
            {"sparse": SparseConfig(n_selected=2, d_index=1, index_heads=1)},
            "d_index must be at least rotary.dim=2",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(variant: str, changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny_model(variant, **changes)


def test_sizes_that_make_no_sense_are_named() -> None:
    for wrong, message in (({"kv_rank": 0}, "latent.kv_rank must be positive"), ({"q_rank": -1}, "latent.q_rank must be")):
        with pytest.raises(ConfigError, match=message):
            LatentConfig(**({"kv_rank": 4, "d_shared": 2} | wrong))
    for wrong, message in (
        ({"d_index": -1}, "sparse.d_index must be"),
        ({"index_layout": "thirds"}, "sparse.index_layout must be one of"),
    ):
        with pytest.raises(ConfigError, match=message):
            SparseConfig(**wrong)
    cfg = tiny_config("indexed_latent_reused")
    assert type(cfg).from_json(cfg.to_json()) == cfg
