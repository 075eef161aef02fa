"""What is special about gates, head norms, differential and talking heads, and other normalisers than the softmax."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from models import ConfigError, HookError, InputError, KVCache, TransformerConfig
from models.kernels.kernel_functions import KernelWarning
from tests.models.variants import tiny_config, tiny_model, tiny_tokens


def watched(variant: str, **changes):
    """A float64 model, its logits, everything it shows, and layer 1's attention."""
    model = tiny_model(variant, dtype=torch.float64, **changes)
    logits, cache = model.run_with_cache(tiny_tokens(), names="*")
    return model, logits, cache, model.blocks[1].attn


def decoded(model, tokens: torch.Tensor) -> torch.Tensor:
    """Logits with a cache: a chunk of four tokens first, then one at a time."""
    cache = KVCache(model.cfg)
    pieces = [model(tokens[:, :4], cache=cache)]
    return torch.cat(pieces + [model(tokens[:, place, None], cache=cache) for place in range(4, tokens.shape[1])], 1)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """x [batch, pos, head, 4] rotated by position, written out."""
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * torch.tensor([1.0, 10_000.0**-0.5], dtype=torch.float64)
    cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
    first, second = x[..., :2], x[..., 2:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def causal(scores: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)


def test_a_gate_multiplies_what_the_pattern_collects() -> None:
    _, _, cache, attn = watched("gate")
    step = attn.out_steps["gate"]
    gate = torch.sigmoid(cache["normalized", 1, "ln1"] @ step.proj.weight.T).unflatten(-1, (4, 6))
    assert torch.allclose(cache["gate", 1], gate, atol=1e-12)
    assert torch.allclose(cache["z", 1], cache["mixed", 1] * gate, atol=1e-12)


def test_the_effective_pattern_is_a_view_and_makes_only_its_layer_dense() -> None:
    model, logits, cache, _ = watched("gate")
    name = "blocks.1.attn.hook_effective_pattern"
    weight = cache["gate", 1].mean(-1).transpose(1, 2)[..., None]
    assert torch.allclose(cache[name], cache["pattern", 1] * weight, atol=1e-12)
    alone, seen = model.run_with_cache(tiny_tokens(), names=name)
    assert torch.allclose(seen[name], cache[name], atol=1e-10) and torch.allclose(alone, logits, atol=1e-10)
    with pytest.raises(HookError, match="hook_effective_pattern"):
        model.run_with_hooks(tiny_tokens(), fwd_hooks=[(name, lambda tensor, hook: tensor * 2)])
    halved = [("blocks.1.attn.hook_pattern", lambda pattern, hook: pattern / 2)]
    with model.hooks(halved):
        assert torch.allclose(model.run_with_cache(tiny_tokens(), names=name)[1][name], cache[name] / 2, atol=1e-10)


def test_head_norm_divides_each_head_by_its_own_size() -> None:
    model, _, cache, attn = watched("head_norm")
    scale = (cache["mixed", 1].pow(2).mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt()
    assert torch.allclose(cache["head_scale", 1], scale)
    normed = cache["mixed", 1] / scale * attn.out_steps["head_norm"].weight
    assert torch.allclose(cache["z", 1], normed * cache["gate", 1])


def test_differential_attention_is_its_formula() -> None:
    _, _, cache, attn = watched("differential")
    part, x = attn.normaliser, cache["normalized", 1, "ln1"]
    factor = (part.lambda_q1 @ part.lambda_k1).exp() - (part.lambda_q2 @ part.lambda_k2).exp() + 0.8 - 0.6 * math.exp(-0.3)
    assert torch.allclose(cache["lambda", 1], factor)
    for head in range(4):
        kv = head // 2
        maps = []
        for half in (slice(0, 4), slice(4, 8)):
            q = rotated((x @ attn.W_Q[head][:, half])[:, :, None])[:, :, 0]
            k = rotated((x @ attn.W_K[kv][:, half])[:, :, None])[:, :, 0]
            maps.append(causal(q @ k.transpose(1, 2) * 0.5).softmax(-1))
        pattern = maps[0] - factor * maps[1]
        assert torch.allclose(cache["pattern", 1][:, head], pattern, atol=1e-10)
        mixed = pattern @ (x @ attn.W_V[kv])
        assert torch.allclose(cache["mixed", 1][:, :, head], mixed, atol=1e-10)
        normed = mixed / (mixed.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * (0.2 + 0.6 * math.exp(-0.3))
        assert torch.allclose(cache["z", 1][:, :, head], normed, atol=1e-10)


def test_differential_rows_sum_to_one_less_lambda_and_lambda_zero_is_the_first_pattern() -> None:
    model, logits, cache, _ = watched("differential")
    assert cache["pattern", 1].min() < 0
    assert torch.allclose(cache["pattern", 1].sum(-1), 1 - cache["lambda", 1])
    with model.hooks([("blocks.*.attn.hook_lambda", lambda factor, hook: factor * 0)]):
        _, plain = model.run_with_cache(tiny_tokens())
        fused = model(tiny_tokens())
        dense = model.run_with_cache(tiny_tokens(), names="*.hook_pattern")[0]
    assert torch.allclose(plain["pattern", 1], plain["attn_scores", 1][:, :4].softmax(-1))
    assert torch.allclose(fused, dense, atol=1e-10) and (fused - logits).abs().max() > 1e-2


def test_differential_attention_decodes_and_takes_a_mask_for_each_head() -> None:
    model, tokens = tiny_model("differential", dtype=torch.float64), tiny_tokens()
    assert torch.allclose(decoded(model, tokens), model(tokens), atol=1e-10)
    visible = torch.ones(4, 9, 9).tril().bool()
    visible[2] &= torch.eye(9).bool() | (torch.arange(9) == 0)
    dense, cache = model.run_with_cache(tokens, visible=visible[None])
    assert cache["pattern", 1][:, 2, 5].count_nonzero(-1).tolist() == [2, 2]
    assert torch.allclose(model(tokens, visible=visible[None]), dense, atol=1e-10)
    with_kernel = tiny_model("differential", normaliser="kernel_sum", dtype=torch.float64)
    assert torch.allclose(with_kernel(tokens), model(tokens), atol=1e-10)
    with pytest.raises(ConfigError, match="must be even, got 7"):
        tiny_model("differential", d_head=7, positions="none")
    with pytest.raises(ConfigError, match="no qk_norm"):
        tiny_model("differential", qk_norm="per_head")
    with pytest.raises(ConfigError, match="normaliser='sink_softmax' weights for one"):
        tiny_model("differential", normaliser="sink_softmax")


def test_talking_heads_mix_scores_and_weights() -> None:
    _, _, cache, attn = watched("talking_heads")
    mixed = torch.einsum("oh,bhqk->boqk", attn.mix_scores, cache["raw_scores", 1])
    assert torch.allclose(cache["attn_scores", 1], causal(mixed))
    assert torch.allclose(cache["unmixed_pattern", 1], causal(mixed).softmax(-1))
    pattern = torch.einsum("oh,bhqk->boqk", attn.normaliser.weight, cache["unmixed_pattern", 1])
    assert torch.allclose(cache["pattern", 1], pattern)
    q, k = cache["q", 1], cache["k", 1]
    assert torch.allclose(cache["raw_scores", 1], torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(8))


def test_heads_that_do_not_mix_are_ordinary_ones() -> None:
    model, plain = tiny_model("talking_heads"), tiny_model("talking_heads", mixer="attention")
    for block in model.blocks:
        torch.nn.init.eye_(block.attn.mix_scores)
        torch.nn.init.eye_(block.attn.normaliser.weight)
    plain.load_state_dict(model.state_dict(), strict=False)
    assert torch.allclose(model(tiny_tokens()), plain(tiny_tokens()), atol=1e-5)


def test_sigmoid_weights_count_the_keys_in_sight() -> None:
    model, logits, cache, _ = watched("sigmoid")
    scores = cache["attn_scores", 1]
    n_keys = torch.arange(1, 10, dtype=torch.float64)[:, None]
    assert torch.allclose(cache["pattern", 1], torch.sigmoid(scores - n_keys.log()))
    assert (cache["pattern", 1].sum(-1) - 1).abs().max() > 1e-2
    assert torch.allclose(decoded(model, tiny_tokens()), logits, atol=1e-10)
    biased = tiny_model("sigmoid", dtype=torch.float64, extra={"sigmoid_bias": -1.5})
    _, cache = biased.run_with_cache(tiny_tokens())
    assert torch.allclose(cache["pattern", 1], torch.sigmoid(cache["attn_scores", 1] - 1.5))


def test_kernel_sums_in_a_model() -> None:
    model, logits, cache, _ = watched("kernel_sum")
    q, k = F.elu(rotated_by(model, cache, "q")) + 1, F.elu(rotated_by(model, cache, "k")) + 1
    assert torch.allclose(cache["rot_q", 1], q, atol=1e-10) and torch.allclose(cache["rot_k", 1], k, atol=1e-10)
    weights = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(2, 2)).tril()
    assert torch.allclose(cache["pattern", 1], weights / weights.sum(-1, keepdim=True), atol=1e-10)
    assert torch.allclose(decoded(model, tiny_tokens()), logits, atol=1e-10)
    assert TransformerConfig.from_json(model.cfg.to_json()) == model.cfg


def rotated_by(model, cache, name: str) -> torch.Tensor:
    """Queries or keys of layer 1 as the same model's rotation alone gives them."""
    plain = tiny_model("kernel_sum", dtype=torch.float64, normaliser="softmax", extra={})
    hook = (f"blocks.1.attn.hook_{name}", lambda tensor, hook: cache[name, 1])
    with plain.hooks([hook]):
        return plain.run_with_cache(tiny_tokens())[1][f"rot_{name}", 1]


def test_the_exponential_kernel_sum_is_the_softmax() -> None:
    model = tiny_model("kernel_exp")
    plain = tiny_model("kernel_exp", normaliser="softmax", extra={})
    assert torch.allclose(model(tiny_tokens()), plain(tiny_tokens()), atol=1e-5)


def test_kernel_sums_that_are_not_positive_are_refused_or_reported() -> None:
    with pytest.raises(InputError, match="rows of kernel weights have a sum that is not positive"):
        tiny_model("kernel_sum", extra={"kernel": "identity"})(tiny_tokens())
    model = tiny_model("kernel_sum", extra={"kernel": "identity", "on_nonpositive": "report"})
    with pytest.warns(KernelWarning):
        assert model(tiny_tokens()).isfinite().all()
    for extra, message in (
        ({"kernel": "cosine"}, "kernel 'cosine' is not known"),
        ({"on_nonpositive": "skip"}, "'raise' or 'report', got 'skip'"),
    ):
        with pytest.raises(ConfigError, match=message):
            tiny_model("kernel_sum", extra=extra)


def test_layers_without_positions_do_not_rotate() -> None:
    for variant, without in (("smollm3", 1), ("cohere2", 1)):
        names = tiny_model(variant).hook_names
        rotating = [layer for layer in range(3) if f"blocks.{layer}.attn.hook_rot_q" in names]
        assert rotating == [layer for layer in range(3) if layer != without]
    assert tiny_config("cohere2").for_layer(1).mask == "full" and tiny_config("cohere2").for_layer(0).mask == "sliding"
