"""Mixtures of experts: one result however it is computed, weights that can be edited, contributions that add up."""

from __future__ import annotations

import pytest
import torch

from models.config import ExpertsConfig, TransformerConfig
from models.errors import CheckpointError, ConfigError
from models.experts import Experts
from models.loading.fill import MappingSource, build_model
from tests.models.variants import tiny_config, tiny_model, tiny_tokens
from tests.models.variants_experts import VARIANTS

MIXTURES = [name for name, changes in VARIANTS.items() if "experts" in changes]
LAYER = 2
AT = f"blocks.{LAYER}.mlp"
ALL_AT_ONCE = ("hook_expert_pre", "hook_expert_post", "hook_expert_out")


def mixture(variant: str) -> tuple[Experts, torch.Tensor]:
    """The mixture of one layer in float64, its weights at random, and an input."""
    layer = tiny_model(variant, dtype=torch.float64).blocks[LAYER].mlp
    return layer, torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def by_hand(layer: Experts, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What each expert adds for one token: [expert, d_model]."""
    parts, options, out = layer.experts, layer.options, []
    for e in range(options.n_experts):
        read = weights[e] * x if options.weighed == "input" else x

        def linear(part, vector, e=e):
            return part.weight[e] @ vector + (0 if part.bias is None else part.bias[e])

        if parts.gate is None:
            hidden = layer.activation(linear(parts.up, read))
        else:
            gate, up = linear(parts.gate, read), linear(parts.up, read)
            if options.limit is not None:
                gate, up = gate.clamp(max=options.limit), up.clamp(-options.limit, options.limit)
            hidden = layer.activation(gate) * (up + options.up_offset)
        written = linear(parts.down, hidden)
        out.append(written if options.weighed == "input" else weights[e] * written)
    return torch.stack(out)


@pytest.mark.parametrize("variant", MIXTURES)
def test_output_is_the_sum_over_experts(variant: str) -> None:
    """For every token, from the router's weights on, against the formula; whether or not hooks make all experts run."""
    layer, x = mixture(variant)
    seen: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        sparse = layer(x)
        weights = layer.choose(layer.router(x), layer.options, layer.router.correction)
        pairs = zip(x.flatten(0, 1), weights.flatten(0, 1), strict=True)
        each = torch.stack([by_hand(layer, *pair) for pair in pairs]).unflatten(0, x.shape[:2])
        shared = layer._shared(x) if layer.options.d_shared else torch.zeros_like(x)
    torch.testing.assert_close(sparse, each.sum(2) + shared, rtol=1e-10, atol=1e-12)
    model = tiny_model(variant, dtype=torch.float64)
    _, seen = model.run_with_cache(tiny_tokens(), names=[f"{AT}.hook_expert_out", f"blocks.{LAYER}.hook_mlp_out"])
    total = seen[f"{AT}.hook_expert_out"].sum(2)
    if layer.options.d_shared:
        total = total + model.run_with_cache(tiny_tokens(), names=f"{AT}.hook_shared_out")[1][f"{AT}.hook_shared_out"]
    torch.testing.assert_close(total, seen[f"blocks.{LAYER}.hook_mlp_out"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", MIXTURES)
@pytest.mark.parametrize("point", ALL_AT_ONCE)
def test_looking_inside_changes_nothing(variant: str, point: str) -> None:
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens()
    plain = model(tokens)
    watched, cache = model.run_with_cache(tokens, names=f"{AT}.{point}")
    torch.testing.assert_close(watched, plain, rtol=1e-10, atol=1e-12)
    assert cache[f"{AT}.{point}"].shape[:3] == (2, 9, model.blocks[LAYER].mlp.options.n_experts)


@pytest.mark.parametrize("variant", MIXTURES)
def test_weights_say_which_experts_count(variant: str) -> None:
    model = tiny_model(variant)
    _, cache = model.run_with_cache(tiny_tokens(), names=f"{AT}.hook_expert_*")
    weights, out = cache[f"{AT}.hook_expert_weights"], cache[f"{AT}.hook_expert_out"]
    assert ((weights != 0).sum(-1) == model.blocks[LAYER].mlp.options.n_active).all()
    assert torch.equal(out.abs().sum(-1) > 0, weights != 0)


@pytest.mark.parametrize("variant", MIXTURES)
def test_an_edited_weight_switches_an_expert_on_or_off(variant: str) -> None:
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens()
    name = f"{AT}.hook_expert_weights"
    for strength in (0.0, 0.7):

        def only_the_last(weights, hook, strength=strength):
            weights.zero_()
            weights[..., -1] = strength

        hooks = [(name, only_the_last)]
        with model.hooks(hooks):
            _, cache = model.run_with_cache(tokens, names=[f"{AT}.hook_expert_out", f"blocks.{LAYER}.hook_mlp_out"])
        out = cache[f"{AT}.hook_expert_out"]
        assert (out[..., :-1, :] == 0).all()
        assert (out[..., -1, :] == 0).all() == (strength == 0)
        got = model.run_with_hooks(tokens, fwd_hooks=hooks)
        with model.hooks([*hooks, (f"{AT}.hook_expert_out", lambda tensor, hook: None)]):
            torch.testing.assert_close(got, model(tokens), rtol=1e-10, atol=1e-12)
        assert not torch.allclose(got, model(tokens))


def test_edited_logits_send_tokens_elsewhere() -> None:
    model = tiny_model("mixtral")

    def favour_the_last(logits, hook):
        logits[..., -1] += 100.0

    with model.hooks([(f"{AT}.hook_router_logits", favour_the_last)]):
        _, cache = model.run_with_cache(tiny_tokens(), names=f"{AT}.hook_expert_weights")
    torch.testing.assert_close(cache[f"{AT}.hook_expert_weights"][..., -1], torch.ones(2, 9))


def test_unused_experts_do_not_run() -> None:
    """An expert that no token goes to is not computed: it may hold NaN."""
    layer, x = mixture("gpt_oss")
    with torch.no_grad():
        layer.router.bias[1] = -1e9
        wanted = layer(x)
        layer.experts.up.weight[1] = torch.nan
        assert torch.equal(layer(x), wanted)


def test_gradients_of_the_weights_of_unchosen_experts() -> None:
    """What switching an expert on a little would change, against finite differences."""
    model, tokens = tiny_model("mixtral", dtype=torch.float64), tiny_tokens()
    name, grads = f"{AT}.hook_expert_weights", {}
    with model.hooks(bwd_hooks=[(name, lambda grad, hook: grads.update(weights=grad.clone()))]):
        model(tokens).sum().backward()
    _, cache = model.run_with_cache(tokens, names=name)
    batch, pos, expert = (cache[name] == 0).nonzero()[3].tolist()

    def nudged(step: float) -> torch.Tensor:
        def nudge(weights, hook):
            weights[batch, pos, expert] += step

        with torch.no_grad():
            return model.run_with_hooks(tokens, fwd_hooks=[(name, nudge)]).sum()

    slope = (nudged(1e-5) - nudged(-1e-5)) / 2e-5
    torch.testing.assert_close(grads["weights"][batch, pos, expert], slope, rtol=1e-6, atol=1e-8)


def test_training_reaches_router_and_experts_but_not_the_correction() -> None:
    model = tiny_model("grouped_experts")
    model(tiny_tokens(4, 30)).logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        if ".mlp." in name:
            assert (parameter.grad is None) == name.endswith("correction"), name


def test_layers_without_experts_have_an_mlp() -> None:
    names = tiny_model("shared_expert").hook_names
    assert "blocks.0.mlp.hook_pre" in names and "blocks.0.mlp.hook_router_logits" not in names
    assert "blocks.1.mlp.hook_router_logits" in names and "blocks.1.mlp.hook_pre" not in names
    assert "blocks.1.mlp.shared.hook_pre" in names


@pytest.mark.parametrize("variant", MIXTURES)
def test_config_survives_json(variant: str) -> None:
    cfg = tiny_config(variant)
    assert TransformerConfig.from_json(cfg.to_json()) == cfg


@pytest.mark.parametrize("variant", MIXTURES)
def test_weight_views(variant: str) -> None:
    layer, x = mixture(variant)
    options = layer.options
    assert layer.W_in.shape == (options.n_experts, 32, options.d_expert)
    assert layer.W_out.shape == (options.n_experts, options.d_expert, 32)
    assert (layer.W_gate is None) == (layer.experts.gate is None)
    torch.testing.assert_close(x @ layer.W_router + (0 if layer.router.bias is None else layer.router.bias), layer.router(x))
    bias = 0 if layer.experts.up.bias is None else layer.experts.up.bias[1]
    torch.testing.assert_close(x[0] @ layer.W_in[1] + bias, layer.experts.up.one(1, x[0]))


@pytest.mark.parametrize("field", ["n_experts", "d_expert", "d_shared"])
def test_a_file_cannot_state_experts_larger_than_any(field: str) -> None:
    experts = ExpertsConfig(**({"n_experts": 4, "n_active": 1, "d_expert": 8, "d_shared": 8} | {field: 1 << 60}))
    with pytest.raises(CheckpointError, match=f"states .*{field}=1152921504606846976.*too large for any file"):
        build_model(tiny_config("mixtral", experts=experts), MappingSource({}, "a dict"), None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_active": 5}, "experts.n_active must be at most the 4 experts"),
        ({"n_active": 0}, "experts.n_active must be positive, got 0"),
        ({"n_groups": 3}, "experts.n_experts=4 must be a multiple of experts.n_groups=3"),
        ({"n_groups": 2, "n_active_groups": 3}, "experts.n_active_groups must be at most the 2 groups"),
        ({"n_groups": 2, "group_top": 3}, "experts.group_top must be at most the 2 experts a group has"),
        ({"n_groups": 4, "n_active": 2}, "experts.n_active must be at most the 1 experts its active groups have"),
        ({"router": "sofmax"}, "experts.router must be one of .*softmax"),
        ({"weighed": "inputs"}, "experts.weighed must be one of output, input"),
        ({"weighed": "input", "bias": True}, "experts.weighed='input' needs experts without bias"),
        ({"shared_gate": True}, "experts.shared_gate needs a shared expert"),
        ({"d_shared": -1}, "experts.d_shared must be a whole number of 0 or more, got -1"),
        ({"limit": 0.0}, "experts.limit must be positive, got 0.0"),
    ],
)
def test_options_that_make_no_sense(changes: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ExpertsConfig(**({"n_experts": 4, "n_active": 1, "d_expert": 8} | changes))
