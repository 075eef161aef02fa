"""Attention to chosen blocks, against loops over queries written from the papers, in float64 and beside padding."""

from __future__ import annotations

import pytest
import torch

from models import ConfigError, HookError
from models.config import SparseConfig
from tests.models.variants import tiny_model, tiny_tokens
from tests.oracles.second_forms import attend, block_means, native_sparse_parts

LENGTH = 11


def cached(variant: str, **changes):
    """A run of a tiny model in float64, on one row."""
    model = tiny_model(variant, dtype=torch.float64, **changes)
    return model, model.run_with_cache(tiny_tokens(batch=1, length=LENGTH), names="*")[1]


@pytest.mark.parametrize(("size", "n"), [(2, 2), (2, 3), (3, 2), (4, 1)])
def test_block_mixture_sees_its_own_block_and_the_best_of_the_past(size: int, n: int) -> None:
    model, cache = cached("block_mixture", sparse=SparseConfig(n_selected=n, block=size))
    for layer in range(3):
        q, k, v = (cache[name, layer][0] for name in ("rot_q", "rot_k", "v"))
        for head in range(4):
            for query in range(LENGTH):
                keys, own = k[: query + 1, head // 2], query // size
                past = block_means(keys, size, own) @ q[query, head] if own else keys.new_zeros(0)
                best = past.topk(min(n - 1, own)).indices.tolist()
                seen = [key for key in range(query + 1) if key // size in (*best, own)]
                wanted = attend(q[query, head], keys[seen], v[seen, head // 2])
                assert torch.allclose(cache["z", layer][0, query, head], wanted, atol=1e-12)
                assert cache["selection", layer][0, head, query, : query + 1].nonzero().flatten().tolist() == seen


def test_a_block_mixture_of_all_blocks_is_full_attention() -> None:
    sparse, tokens = tiny_model("block_mixture", sparse=SparseConfig(n_selected=9, block=2)), tiny_tokens()
    plain = tiny_model("llama", n_kv_heads=2)
    plain.load_state_dict(sparse.state_dict())
    assert torch.allclose(sparse(tokens), plain(tokens), atol=1e-6)


def test_blocks_choose_within_documents() -> None:
    model, tokens = tiny_model("block_mixture"), tiny_tokens(batch=1, length=12)
    documents = torch.tensor([[0] * 5 + [1] * 7])
    both = model(tokens, documents=documents)
    for start, stop in ((0, 5), (5, 12)):
        assert torch.allclose(both[:, start:stop], model(tokens[:, start:stop]), atol=1e-5)


@pytest.mark.parametrize(("size", "n", "window"), [(2, 3, 3), (2, 4, 1), (3, 3, 20)])
def test_native_sparse_attention_is_the_gated_sum_of_its_three_branches(size: int, n: int, window: int) -> None:
    model, cache = cached("native_sparse", sparse=SparseConfig(n_selected=n, block=size, window=window))
    fused = model.run_with_cache(tiny_tokens(batch=1, length=LENGTH), names="blocks.*.attn.hook_z")[1]
    for layer in range(3):
        for head in range(4):
            for query in range(LENGTH):
                wanted, chosen = native_sparse_parts(model, cache, layer, head, query)
                assert torch.allclose(cache["z", layer][0, query, head], wanted, atol=1e-12)
                assert torch.allclose(fused["z", layer][0, query, head], wanted, atol=1e-12)
                assert cache["selection", layer][0, head // 2, query, : query + 1].nonzero().flatten().tolist() == chosen


def test_the_effective_pattern_is_the_gated_sum_of_the_branches_patterns() -> None:
    _, cache = cached("native_sparse")
    compressed, selected, window = (cache[f"pattern_{name}", 1] for name in ("compressed", "selected", "window"))
    gates = cache["gate_branches", 1].permute(0, 2, 1, 3)[..., None, :]
    by_token = compressed.repeat_interleave(2, -1)[..., :LENGTH] / 2
    assert torch.allclose(cache["pattern", 1], (gates * torch.stack((by_token, selected, window), -1)).sum(-1), atol=1e-12)
    for pattern in (selected, window):
        assert torch.allclose(pattern.sum(-1), torch.ones((), dtype=torch.float64), atol=1e-12)
    assert compressed[..., 0, :].abs().max() == 0


def test_a_closed_gate_and_an_edited_branch_do_what_they_say() -> None:
    model, tokens = tiny_model("native_sparse"), tiny_tokens()

    def only_window(gates: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.tensor([0.0, 0.0, 1.0]).expand_as(gates)

    def own_token(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.eye(9).expand_as(pattern)

    hooks = [("blocks.1.attn.hook_gate_branches", only_window), ("blocks.1.attn.hook_pattern_window", own_token)]
    with model.hooks(hooks):
        _, cache = model.run_with_cache(tokens)
    assert torch.allclose(cache["z", 1], cache["v", 1].repeat_interleave(2, 2), atol=1e-6)
    gated = model.run_with_hooks(tokens, fwd_hooks=hooks[:1])
    with model.hooks(hooks[:1]):
        _, cache = model.run_with_cache(tokens)
    assert torch.allclose(cache["pattern", 1], cache["pattern_window", 1], atol=1e-6)
    assert torch.allclose(
        gated, model.run_with_hooks(tokens, fwd_hooks=[*hooks[:1], ("*.hook_pattern", lambda p, hook: p)]), atol=1e-5
    )


def test_scores_of_blocks_rank_only_in_a_mixture_of_blocks() -> None:
    model, tokens, seen = tiny_model("block_mixture"), tiny_tokens(), []
    with pytest.raises(HookError, match=r"no gradient reaches 'blocks.2.attn.hook_block_scores'"):
        model.run_with_hooks(tokens, bwd_hooks=[("blocks.2.attn.hook_block_scores", lambda gradient, hook: None)])
    model = tiny_model("native_sparse")
    with model.hooks(bwd_hooks=[("blocks.2.attn.hook_block_scores", lambda gradient, hook: seen.append(gradient))]):
        model(tokens).sum().backward()
    assert seen[0].abs().max() > 0


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("block_mixture", {"sparse": SparseConfig(block=2)}, "needs sparse.n_selected, a positive"),
        ("native_sparse", {"sparse": SparseConfig(n_selected=3, block=2)}, "needs sparse.window, a positive"),
        ("native_sparse", {"sparse": SparseConfig(n_selected=2, block=2, window=2)}, "sparse.n_selected must be at least 3"),
        ("native_sparse", {"attn_softcap": 3.0}, "has no attn_softcap, got 3.0"),
    ],
)
def test_settings_that_do_not_fit_are_named(variant: str, changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny_model(variant, **changes)


def test_a_block_that_is_seen_in_part_is_not_scored() -> None:
    _, cache = cached("block_mixture_window")
    scores, selection = cache["block_scores", 0][0, 0], cache["selection", 0][0, 0]
    # Query 9, in block 3, sees tokens 3 to 9: blocks 1 and 2 wholly; query 10 sees only the last two tokens of block 1.
    assert scores[9].isfinite().tolist() == [False, True, True, False]
    assert scores[10].isfinite().tolist() == [False, False, True, False]
    assert selection[10].nonzero().flatten().tolist() == [6, 7, 8, 9, 10]
