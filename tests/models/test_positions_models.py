"""Models with ALiBi, offset tables, LongRoPE and proportional rotation: what is special about each, beside the generic tests."""

from __future__ import annotations

import math

import pytest
import torch

from models import ConfigError, HookedTransformer, InputError, KVCache, RotaryConfig, TransformerConfig
from models.config import AlibiConfig
from models.positions.alibi import alibi_slopes
from models.positions.rotary import SCALINGS, base_frequencies
from tests.models.variants import tiny_config, tiny_model, tiny_tokens

ALIBI = ("bloom", "mpt", "falcon_alibi", "alibi_encoder")


def expected_bias(cfg: TransformerConfig, head: int, query: int, key: int) -> float:
    """Press et al.'s bias in plain Python, 4 heads, with Falcon's rounding and scaling where the config asks for them."""
    options = cfg.alibi or AlibiConfig()
    slope = 2 ** (-options.max_bias * (head + 1) / cfg.n_heads)
    if options.is_rounded:
        at = [float((torch.tensor(slope).bfloat16() * torch.tensor(position)).float()) for position in (query, key)]
        distance = abs(at[0] - at[1])
    else:
        distance = slope * abs(query - key)
    return -distance * (cfg.attn_scale if options.is_scaled else 1.0)


@pytest.mark.parametrize("variant", ALIBI)
def test_scores_fall_with_distance(variant: str) -> None:
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens(length=12)
    cfg = model.cfg
    _, cache = model.run_with_cache(tokens)
    q, k = cache["q", 0], cache["k", 0].repeat_interleave(cfg.group_size, 2)
    scores, pattern = torch.full((2, 4, 12, 12), -math.inf, dtype=torch.float64), cache["pattern", 0]
    for head in range(4):
        for query in range(12):
            for key in range(query + 1 if cfg.causal else 12):
                dots = (q[:, query, head] * k[:, key, head]).sum(-1) * cfg.attn_scale
                scores[:, head, query, key] = dots + expected_bias(cfg, head, query, key)
    assert (pattern - scores.softmax(-1)).abs().max() < 1e-9
    seen = scores.isfinite()
    assert (cache["attn_scores", 0] - scores)[seen].abs().max() < 1e-6


@pytest.mark.parametrize("variant", ALIBI)
def test_zeroing_the_bias_leaves_a_model_without_positions(variant: str) -> None:
    model, tokens = tiny_model(variant), tiny_tokens()
    plain = HookedTransformer(model.cfg.replace(score_terms=()))
    plain.load_state_dict(model.state_dict())
    zero = ("blocks.*.attn.hook_alibi", lambda bias, hook: torch.zeros_like(bias))
    assert (model.run_with_hooks(tokens, fwd_hooks=[zero]) - plain(tokens)).abs().max() < 1e-5
    assert (model(tokens) - plain(tokens)).abs().max() > 1e-2


def test_the_bias_of_one_row_and_head_can_be_edited() -> None:
    model, tokens = tiny_model("bloom"), tiny_tokens()
    before = model.run_with_cache(tokens)[1]["pattern", 1]

    def flatten(bias: torch.Tensor, hook: object) -> torch.Tensor:
        changed = bias.clone()
        changed[1, 2] = 0
        return changed

    with model.hooks([("blocks.1.attn.hook_alibi", flatten)]):
        after = model.run_with_cache(tokens)[1]["pattern", 1]
    changes = (after - before).abs().amax((2, 3)) > 1e-4
    assert changes.tolist() == [[False] * 4, [False, False, True, False]]


def test_the_bias_of_a_decoded_token_counts_from_its_own_position() -> None:
    model, tokens = tiny_model("bloom"), tiny_tokens(length=10)
    cache = KVCache(model.cfg)
    model(tokens[:, :9], cache=cache)
    _, seen = model.run_with_cache(tokens[:, 9:], cache=cache, names="blocks.0.attn.hook_alibi")
    wanted = -alibi_slopes(4).float()[:, None] * torch.arange(9, -1, -1)
    assert torch.equal(seen["alibi", 0], wanted[None, :, None].expand(2, -1, -1, -1))


def test_a_table_with_an_offset_is_read_that_many_rows_in() -> None:
    model = tiny_model("opt")
    assert model.pos_embed.weight.shape == (42, 32)
    _, cache = model.run_with_cache(tiny_tokens(), names="hook_pos_embed")
    assert torch.equal(cache["pos_embed"][0], model.pos_embed.weight[2:11])


def longrope(**changes: object) -> RotaryConfig:
    fields = {
        "scaling": "longrope",
        "original_n_ctx": 16,
        "factor": 4.0,
        "short_factor": (1.0, 1.2, 1.5, 2.0),
        "long_factor": (1.0, 2.0, 4.0, 8.0),
    }
    return RotaryConfig(**(fields | changes))


def test_longrope_divides_each_frequency_and_switches_past_its_length() -> None:
    base = base_frequencies(10_000.0, 8)
    for length, divisors in ((16, (1.0, 1.2, 1.5, 2.0)), (17, (1.0, 2.0, 4.0, 8.0))):
        inverse, factor = SCALINGS["longrope"](longrope(), 8, length)
        assert torch.allclose(inverse, base / torch.tensor(divisors).double(), rtol=1e-12)
        assert factor == pytest.approx(math.sqrt(1 + math.log(4) / math.log(16)))
    assert SCALINGS["longrope"](longrope(attention_factor=1.3), 8, 5).attention_factor == 1.3
    assert SCALINGS["longrope"](longrope(factor=1.0), 8, 5).attention_factor == 1.0


def test_a_longrope_cache_holds_on_either_side_of_the_switch_only() -> None:
    model, tokens = tiny_model("longrope"), tiny_tokens(length=24)
    whole = model(tokens)
    for first in (17, 20):
        cache = KVCache(model.cfg)
        parts = [model(tokens[:, :first], cache=cache), model(tokens[:, first:], cache=cache)]
        # The first part alone is as long as to be past the switch, so its angles are those of the whole.
        assert (torch.cat(parts, 1) - whole).abs().max() < 1e-5 * whole.abs().max()
    cache = KVCache(model.cfg)
    model(tokens[:, :10], cache=cache)
    model(tokens[:, 10:16], cache=cache)
    with pytest.raises(InputError, match="17 tokens exceed the 16 for which a cache stays right: longrope"):
        model(tokens[:, 16:17], cache=cache)
    assert cache.length == 16


@pytest.mark.parametrize("length", [4, 18])
def test_generation_crosses_the_switch(length: int) -> None:
    model, tokens = tiny_model("longrope"), tiny_tokens(length=length)
    rows = [tokens]
    for _ in range(20):
        rows.append(model(torch.cat(rows, 1))[:, -1:].argmax(-1))
    assert torch.equal(model.generate(tokens, 20), torch.cat(rows, 1))


def test_padding_does_not_count_towards_the_switch() -> None:
    """12 slots of padding and 8 tokens are 8 tokens, which the short divisors serve."""
    model, tokens = tiny_model("longrope"), tiny_tokens(length=8)
    padded, mask = torch.cat((tiny_tokens(length=12, seed=3), tokens), 1), torch.arange(20)[None].expand(2, -1) >= 12
    cache = KVCache(model.cfg)
    logits = model(padded, attention_mask=mask, cache=cache)
    assert (logits[:, 12:] - model(tokens)).abs().max() < 1e-5
    assert torch.equal(model.generate(padded, 6, attention_mask=mask)[:, 12:], model.generate(tokens, 6))


def test_proportional_rotation_leaves_the_slow_pairs_still() -> None:
    inverse, factor = SCALINGS["proportional"](RotaryConfig(scaling="proportional", proportion=0.25, factor=8.0), 16, 100)
    assert factor == 1.0 and (inverse[2:] == 0).all()
    assert torch.equal(inverse[:2], base_frequencies(10_000.0, 16)[:2] / 8)
    model, tokens = tiny_model("proportional"), tiny_tokens()
    _, cache = model.run_with_cache(tokens)
    still = (cache["q", 0] == cache["rot_q", 0])[:, 1:].all(0).all(0).all(0)
    assert still.tolist() == [False, False, True, True] * 2


def test_configs_survive_json() -> None:
    for variant in (*ALIBI, "opt", "longrope", "proportional"):
        cfg = tiny_config(variant)
        assert TransformerConfig.from_json(cfg.to_json()) == cfg


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"short_factor": (1.0,)}, "rotary.short_factor must hold a divisor for each of 4 pairs, got 1"),
        ({"long_factor": (1.0,) * 5}, "rotary.long_factor must hold a divisor for each of 4 pairs, got 5"),
        ({"long_factor": (1.0, 0.0, 1.0, 1.0)}, "rotary.short_factor and rotary.long_factor must be positive, got 0.0"),
        ({"original_n_ctx": None}, "rotary.scaling='longrope' needs rotary.original_n_ctx"),
        ({"scaling": "proportional", "proportion": 1.5}, "rotary.proportion must be above 0 and at most 1, got 1.5"),
    ],
)
def test_rotary_settings_are_checked(fields: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny_config("longrope", rotary=longrope(**fields))


def test_alibi_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="alibi.max_bias must be positive, got 0.0"):
        AlibiConfig(max_bias=0.0)
