"""Head scores of models that are nothing but a few hooks: no weights, no score hook, scores that are not scores."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from interp.errors import InterpError
from interp.heads import head_scores
from interp.protocol import HookedModel, is_causal, model_name, special_token_ids

LENGTH = 6
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


class Hooks:
    """One layer, two heads, fixed scores; `shows` says what each hook holds."""

    def __init__(self, scores: torch.Tensor, shows: tuple[str, ...] = ("scores", "pattern"), **cfg):
        self.cfg = SimpleNamespace(**({"n_layers": 1, "n_heads": 2, "d_vocab": 10} | cfg))
        self.scores, self.pattern = scores, scores.softmax(-1)
        hooks = {"scores": "blocks.0.attn.hook_attn_scores", "pattern": "blocks.0.attn.hook_pattern"}
        self.hook_names = tuple(hooks[name] for name in shows)

    def run_with_hooks(self, tokens, fwd_hooks=(), **options):
        for name, function in sorted(fwd_hooks, key=lambda hook: hook[0]):
            held = self.scores if name.endswith("scores") else self.pattern
            function(held.expand(len(tokens), -1, -1, -1).clone(), SimpleNamespace(name=name))
        return torch.zeros(*tokens.shape, self.cfg.d_vocab)

    def run_with_cache(self, *args, **kwargs):
        raise NotImplementedError

    def to_tokens(self, text, **options):
        return torch.arange(LENGTH)[None]


def some_scores(masked: float = -math.inf) -> torch.Tensor:
    scores = torch.randn(1, 2, LENGTH, LENGTH, generator=torch.Generator().manual_seed(0))
    return scores.masked_fill(~CAUSAL, masked)


TOKENS = torch.tensor([[1, 2, 3, 1, 2, 3]])


def test_hooks_are_enough():
    model = Hooks(some_scores())
    assert isinstance(model, HookedModel)
    scores = head_scores(model, TOKENS)
    assert scores.model == model_name(model) == "Hooks"
    torch.testing.assert_close(scores.previous_token[0], model.pattern[0].diagonal(-1, 1, 2).mean(-1))
    torch.testing.assert_close(scores.induction[0], model.pattern[0][:, [3, 4, 5], [1, 2, 3]].mean(-1))
    assert bool(scores.ov_copying.isnan().all()) and bool(scores.copying_effect.isnan().all())
    assert head_scores(model, "some text").source == "given tokens"


@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, torch.finfo(torch.bfloat16).min, -65504.0])
def test_finite_masks_are_masks(lowest: float):
    expected, scores = head_scores(Hooks(some_scores()), TOKENS), head_scores(Hooks(some_scores(lowest)), TOKENS)
    for name in ("logit_std", "normalized_entropy", "induction_baseline", "linearity_error"):
        torch.testing.assert_close(getattr(scores, name), getattr(expected, name))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_model_that_attends_its_padding(side: str):
    """Padded rows and keys count nowhere, even where the model's own mask lets them through."""
    mask = torch.arange(LENGTH)[None] >= 2 if side == "left" else torch.arange(LENGTH)[None] < 4
    real = slice(2, None) if side == "left" else slice(0, 4)
    model, tokens = Hooks(some_scores()), torch.arange(LENGTH)[None]
    scores = head_scores(model, tokens, attention_mask=mask)
    inside = model.pattern[0, :, real, real]
    inside = inside / inside.sum(-1, keepdim=True)
    torch.testing.assert_close(scores.entropy[0], torch.special.entr(inside).sum(-1).mean(-1))
    assert scores.n_targets[1, 0].tolist() == [3, 3]
    assert float(scores.baselines[1, 0, 0]) == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / 3)


@pytest.mark.parametrize("shows", [("pattern",), ("scores", "pattern")])
def test_without_true_scores_the_pattern_stands_in(shows: tuple[str, ...]):
    """Some models have no score hook, or one that holds the pattern. ln p has the same spread."""
    truth, model = head_scores(Hooks(some_scores()), TOKENS), Hooks(some_scores(), shows)
    model.scores = model.pattern
    scores = head_scores(model, TOKENS)
    assert (truth.logits_from, scores.logits_from) == ("scores", "pattern")
    for name in ("logit_std", "normalized_entropy", "linearity_error", "induction", "induction_baseline"):
        torch.testing.assert_close(getattr(scores, name), getattr(truth, name), atol=1e-5, rtol=1e-5)


def test_rows_that_underflow_have_no_logit_std():
    sharp = (200.0 * torch.eye(LENGTH)).masked_fill(~CAUSAL, -math.inf).expand(1, 2, -1, -1)
    assert bool(head_scores(Hooks(sharp, ("pattern",)), TOKENS).logit_std.isnan().all())
    assert bool(head_scores(Hooks(sharp), TOKENS).logit_std.isfinite().all())


def test_a_layer_without_a_pattern_is_named():
    with pytest.raises(InterpError, match=r"layer 0 has no attention pattern.*'blocks.0.attn.hook_pattern'"):
        head_scores(Hooks(some_scores(), ("scores",)), TOKENS)


def test_what_a_config_or_tokenizer_says():
    assert is_causal(Hooks(some_scores())) and not is_causal(Hooks(some_scores(), causal=False))
    assert not is_causal(Hooks(some_scores(), attention_dir="bidirectional"))
    model = Hooks(some_scores(), bos_token_id=4, eos_token_ids=(7, 4))
    assert special_token_ids(model) == (4, 7)
    model = Hooks(some_scores())
    model.tokenizer = SimpleNamespace(bos_token_id=3, eos_token_id=1)
    assert special_token_ids(model) == (1, 3)
