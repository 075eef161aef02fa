"""The hand-built models do what their rules say."""

from __future__ import annotations

import pytest
import torch

from models import ConfigError, TransformerConfig
from models.zoo.handbuilt import SINGLE_HEADS, HeadRule, Match, build, induction_model, pointer_model, single_head_model

LENGTH = 13


def tokens_of(batch: int = 3, seed: int = 0) -> torch.Tensor:
    """BOS, six different tokens, the same six again."""
    generator = torch.Generator().manual_seed(seed)
    segment = torch.stack([1 + torch.randperm(19, generator=generator)[:6] for _ in range(batch)])
    return torch.cat([torch.zeros(batch, 1, dtype=torch.long), segment, segment], dim=1)


def attended(model, layer: int, row: int) -> tuple[list[int], list[float]]:
    """Per query, the key with most attention, and how much."""
    pattern = model.run_with_cache(tokens_of(), names=f"blocks.{layer}.attn.hook_pattern")[1]["pattern", layer][row, 0]
    return pattern.argmax(-1).tolist(), pattern.amax(-1).tolist()


def test_the_induction_model_predicts_what_came_next():
    model, tokens = induction_model(20, LENGTH), tokens_of()
    logits = model(tokens).detach()
    assert torch.equal(logits[:, 7:-1].argmax(-1), tokens[:, 8:])
    probability = logits.softmax(-1)[:, 7:-1].gather(-1, tokens[:, 8:, None])
    assert float(probability.min()) == 1.0
    assert attended(model, 0, 0)[0][1:] == list(range(LENGTH - 1))
    keys, weights = attended(model, 1, 1)
    assert keys[7:] == list(range(2, 8)) and min(weights[7:]) == 1.0


@pytest.mark.parametrize("shift, first", [(1, 2), (-1, 0)])
def test_the_pointer_model_follows_the_earlier_position(shift: int, first: int):
    model = pointer_model(20, LENGTH, shift=shift)
    assert attended(model, 0, 0)[0][7:] == list(range(1, 7))
    keys, weights = attended(model, 1, 0)
    assert keys[7:] == list(range(first, first + 6)) and min(weights[7:]) == 1.0


@pytest.mark.parametrize(
    "kind, rows, keys",
    [
        ("previous", range(1, 13), range(12)),
        ("self", range(13), range(13)),
        ("offset", range(5, 13), range(8)),
        ("duplicate", range(7, 13), range(1, 7)),
        ("sink", range(13), [0] * 13),
    ],
)
def test_single_heads_look_where_they_say(kind: str, rows: range, keys):
    model = single_head_model(kind, 20, LENGTH, offset=5)
    found, weights = attended(model, 0, 2)
    assert [found[row] for row in rows] == list(keys)
    assert min(weights[row] for row in rows) == 1.0


def test_the_uniform_head_looks_everywhere():
    weights = attended(single_head_model("uniform", 20, LENGTH), 0, 0)[1]
    assert weights == pytest.approx([1 / (i + 1) for i in range(LENGTH)])


@pytest.mark.parametrize("ov", [1.0, -1.0, 0.0])
def test_ov_scales_what_is_written(ov: float):
    model = single_head_model("previous", 20, LENGTH, ov=ov)
    tokens = tokens_of()
    expected = ov * 60 * torch.nn.functional.one_hot(tokens[:, :-1], 20).float()
    torch.testing.assert_close(model(tokens)[:, 1:], expected)


def test_heads_that_share_a_layer_do_not_interfere():
    lone, crowd = induction_model(20, LENGTH), induction_model(20, LENGTH, extra_heads=3)
    assert crowd.cfg.n_heads == 4
    torch.testing.assert_close(crowd(tokens_of()), lone(tokens_of()))
    ragged = build([[HeadRule((Match("position", "position", -1),)), HeadRule()], [HeadRule(gain=0.0)]], 20, LENGTH)
    assert (ragged.cfg.n_layers, ragged.cfg.n_heads) == (2, 2)


def test_a_model_is_a_config_and_weights():
    model = induction_model(20, LENGTH, bos_token_id=None)
    assert TransformerConfig.from_dict(model.cfg.to_dict()) == model.cfg
    assert model.cfg.attn_only and model.cfg.norm == "none" and model.cfg.bos_token_id is None
    assert torch.equal(model(tokens_of()), induction_model(20, LENGTH)(tokens_of()))


def test_unknown_kinds_and_empty_models_are_refused():
    with pytest.raises(ConfigError, match="kind must be one of .*; got 'duplicates' .*'duplicate'"):
        single_head_model("duplicates", 20, LENGTH)
    with pytest.raises(ConfigError, match="at least one head rule"):
        build([[], []], 20, LENGTH)
    assert all(single_head_model(kind, 5, 4) for kind in SINGLE_HEADS)
