"""The learned sink of each head: what it takes is missing from the row, can be edited, and adds up."""

from __future__ import annotations

import pytest
import torch

from models.attention.sink import sink_share
from models.kernels import fused, reference
from tests.models.variants import tiny_model, tiny_tokens

AT = "blocks.1.attn"


def test_the_sink_is_a_key_without_a_value() -> None:
    """Scores with the sink as one more column, through an ordinary softmax."""
    model = tiny_model("gpt_oss", dtype=torch.float64)
    _, cache = model.run_with_cache(tiny_tokens(), names=f"{AT}.*")
    scores, sink = cache[f"{AT}.hook_attn_scores"], model.blocks[1].attn.normaliser.sink
    column = sink[None, :, None, None].expand(*scores.shape[:3], 1)
    wanted = torch.cat((scores, column), -1).softmax(-1)
    torch.testing.assert_close(cache[f"{AT}.hook_pattern"], wanted[..., :-1], rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(cache[f"{AT}.hook_sink"], wanted[..., -1:], rtol=1e-10, atol=1e-14)
    assert cache[f"{AT}.hook_sink"].mean() > 0.05, "the sinks of this model take nothing"


def test_editing_the_share_rescales_the_row() -> None:
    model, tokens = tiny_model("gpt_oss", dtype=torch.float64), tiny_tokens()
    _, before = model.run_with_cache(tokens, names=f"{AT}.*")
    with model.hooks([(f"{AT}.hook_sink", lambda share, hook: torch.full_like(share, 0.25))]):
        _, after = model.run_with_cache(tokens, names=f"{AT}.*")
    pattern = before[f"{AT}.hook_pattern"] / before[f"{AT}.hook_pattern"].sum(-1, keepdim=True)
    torch.testing.assert_close(after[f"{AT}.hook_pattern"], 0.75 * pattern, rtol=1e-10, atol=1e-14)
    unsunk = model.run_with_hooks(tokens, fwd_hooks=[(f"{AT}.hook_sink", lambda share, hook: torch.zeros_like(share))])
    assert not torch.allclose(unsunk, model(tokens))


@pytest.mark.parametrize("sink", [-1e4, 0.0, 1e4])
def test_rows_without_a_key_and_extreme_sinks(sink: float) -> None:
    scores = torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    scores[:, :, 1] = float("-inf")
    scores[:, :, 2, 2:] = float("-inf")
    scores.requires_grad_()
    share = sink_share(scores, torch.full((2,), sink))
    assert (share[:, :, 1] == 1).all()
    if sink:
        assert (share[:, :, [0, 2]] == float(sink > 0)).all()
    share.sum().backward()
    assert scores.grad.isfinite().all()


def test_padded_queries_give_all_to_the_sink() -> None:
    model, tokens = tiny_model("gpt_oss"), tiny_tokens()
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    _, cache = model.run_with_cache(tokens, names=f"{AT}.*", attention_mask=mask)
    assert (cache[f"{AT}.hook_sink"][0, :, :3] == 1).all()
    assert (cache[f"{AT}.hook_pattern"][0, :, :3] == 0).all()


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("d_head", "d_value"), [(8, 8), (6, 10)])
def test_fused_kernel(masked: bool, is_causal: bool, d_head: int, d_value: int) -> None:
    """Values and gradients against a softmax with one more column; a row without keys is 0."""
    if masked and is_causal:
        pytest.skip("the mask says it all")
    random = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).requires_grad_()

    inputs = (draw(2, 5, 6, d_head), draw(2, 5, 3, d_head), draw(2, 5, 3, d_value), draw(6))
    mask = torch.rand(2, 1, 5, 5, generator=random) < 0.6 if masked else None
    if mask is not None:
        mask[0, 0, 2] = False
    q, k, v, sink = inputs
    got = fused.attend_with_sink(q, k, v, mask, 0.4, is_causal, sink)
    every = torch.ones(5, 5, dtype=torch.bool)
    seen = mask if mask is not None else every.tril() if is_causal else every
    scores = (reference.dot_products(q, k) * 0.4).masked_fill(~seen, float("-inf"))
    column = sink[None, :, None, None].expand(2, 6, 5, 1)
    wanted = reference.mix_values(torch.cat((scores, column), -1).softmax(-1)[..., :-1], v)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-13)
    weights = torch.randn(wanted.shape, generator=random, dtype=torch.float64)
    for ours, theirs in zip(*(torch.autograd.grad((z * weights).sum(), inputs) for z in (got, wanted)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_no_pattern_exists_unless_asked_for() -> None:
    model, tokens = tiny_model("gpt_oss"), tiny_tokens()

    class Watched(type(model.blocks[0].attn.normaliser)):
        def forward(self, scores):
            raise AssertionError("scores were made")

    plain = model(tokens)
    for block in model.blocks:
        block.attn.normaliser.__class__ = Watched
    torch.testing.assert_close(model(tokens), plain)
    for name in ("hook_sink", "hook_pattern", "hook_attn_scores"):
        with pytest.raises(AssertionError, match="scores were made"):
            model.run_with_cache(tokens, names=f"{AT}.{name}")
