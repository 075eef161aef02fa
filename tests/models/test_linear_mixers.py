"""Linear mixers in a model: what their hooks mean, states that caches carry, padding, and bad input."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from models import ConfigError, HookError, InputError, KVCache, TransformerConfig
from models.config import LinearConfig
from models.kernels.linear import delta, gated, kernel
from models.kernels.linear.decays import retention_log_decay
from models.loading.families import FAMILIES
from tests.models.variants import tiny_config, tiny_model, tiny_tokens
from tests.models.variants_linear import VARIANTS
from tests.oracles.cases_linear import CASES

EVERY = pytest.mark.parametrize("variant", VARIANTS)
DELTAS = ("gated_delta_hybrid", "kimi_delta")
ATTN = "blocks.0.attn."


def run(variant: str, length: int = 9, names="*", **changes):
    model = tiny_model(variant, dtype=torch.float64, **changes)
    return model, model.run_with_cache(tiny_tokens(length=length), names=names)[1]


def close(first: torch.Tensor, second: torch.Tensor, tolerance: float = 1e-10) -> bool:
    return first.shape == second.shape and bool((first - second).abs().max() < tolerance)


def rule_inputs(model, cache) -> tuple:
    """What layer 0's rule is given, from its hooks: module, queries, keys, values, and what else it takes."""
    attn = model.blocks[0].attn
    q, k = (cache[f"{ATTN}hook_rot_{name}" if attn.cfg.qk_steps else f"{ATTN}hook_{name}"] for name in "qk")
    heads = attn.cfg.n_heads
    k, v = (x.repeat_interleave(heads // x.shape[2], 2) for x in (k, cache[f"{ATTN}hook_v"]))
    if attn.cfg.mixer == "linear":
        return kernel, F.elu(q) + 1, F.elu(k) + 1, v, ()
    beta = cache[f"{ATTN}hook_beta"] if f"{ATTN}hook_beta" in cache else None
    rest = (cache[f"{ATTN}hook_decay"], beta)
    if attn.cfg.mixer in ("gated_delta", "kimi_delta"):
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
        return delta, q * attn.cfg.attn_scale, k, v, rest
    return gated, q * attn.cfg.attn_scale, k, v, rest


@EVERY
def test_the_hooks_are_what_the_rule_is_given_and_gives(variant):
    model, cache = run(variant)
    module, q, k, v, rest = rule_inputs(model, cache)
    mixed = cache[f"{ATTN}hook_mixed" if f"{ATTN}hook_mixed" in cache else f"{ATTN}hook_z"]
    assert close(cache[f"{ATTN}hook_pattern"], module.implicit_matrix(q, k, *rest))
    assert close(cache[f"{ATTN}hook_state"], torch.stack(list(module.states(k, v, *rest)), 1))
    assert close(mixed, module.recurrent(q, k, v, *rest)[0])
    assert close(mixed, torch.einsum("bhqk,bkhd->bqhd", cache[f"{ATTN}hook_pattern"], v))


@EVERY
def test_chunks_of_the_model_are_invisible(variant):
    model, tokens = tiny_model(variant, dtype=torch.float64, n_ctx=200), tiny_tokens(length=150)
    with_pattern, _ = model.run_with_cache(tokens, names="*.hook_pattern")
    assert close(model(tokens), with_pattern, 1e-9)


@EVERY
def test_an_edited_state_reaches_its_own_token_and_the_last_one_a_later_call(variant):
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens()
    clean = model.run_with_cache(tokens, names=["*.hook_z"])[1]

    def double(at):
        def edit(state, hook):
            state[:, at] *= 2

        return edit

    with model.hooks([(f"{ATTN}hook_state", double(4))]):
        edited = model.run_with_cache(tokens, names=["*.hook_z"])[1]
    changed = (edited[f"{ATTN}hook_z"] - clean[f"{ATTN}hook_z"]).abs().amax((0, 2, 3)) > 1e-9
    if model.cfg.for_layer(0).mixer != "linear":
        assert changed.nonzero().flatten().tolist() == [4]
    else:
        assert not changed.any(), "numerator and denominator double alike"
    cache, plain = KVCache(model.cfg), KVCache(model.cfg)
    model(tokens, cache=plain)
    model.run_with_hooks(tokens, cache=cache, fwd_hooks=[(f"{ATTN}hook_state", double(-1))])
    assert close(cache.state(0)["state"], 2 * plain.state(0)["state"])
    if model.cfg.for_layer(0).mixer != "linear":
        assert not close(model(tokens[:, :1], cache=cache), model(tokens[:, :1], cache=plain), 1e-6)


def test_an_edited_pattern_and_an_edited_state_both_count():
    model, tokens = tiny_model("kimi_delta", dtype=torch.float64), tiny_tokens()
    edits = [(f"{ATTN}hook_pattern", lambda pattern, hook: pattern * 0.5), (f"{ATTN}hook_state", lambda state, hook: state * 2)]
    mixed = [model.run_with_cache(tokens, names=[f"{ATTN}hook_mixed"])[1][f"{ATTN}hook_mixed"]]
    for chosen in (edits[:1], edits[1:], edits):
        with model.hooks(chosen):
            mixed.append(model.run_with_cache(tokens, names=[f"{ATTN}hook_mixed"])[1][f"{ATTN}hook_mixed"])
    assert close(mixed[1], 0.5 * mixed[0]) and close(mixed[2], 2 * mixed[0]) and close(mixed[3], 1.5 * mixed[0])


def test_no_decay_and_full_strength_overwrite():
    model, tokens = tiny_model("gated_delta_hybrid", dtype=torch.float64), tiny_tokens()

    def first(tensor, hook):
        tensor[:] = tensor[:, :1]

    hooks = [(f"{ATTN}hook_decay", lambda decay, hook: decay * 0), (f"{ATTN}hook_beta", lambda beta, hook: beta * 0 + 1)]
    with model.hooks([*hooks, (f"{ATTN}hook_k", first), (f"{ATTN}hook_q", first)]):
        cache = model.run_with_cache(tokens, names=[f"{ATTN}hook_pattern"])[1]
    pattern = cache[f"{ATTN}hook_pattern"]
    assert pattern.tril(-1).abs().max() < 1e-5 < pattern.diagonal(dim1=-2, dim2=-1).abs().min()


def test_a_pattern_is_refused_once_the_past_is_only_a_state():
    model, tokens = tiny_model("mamba2"), tiny_tokens()
    cache = KVCache(model.cfg)
    model.run_with_cache(tokens, cache=cache, names="*.hook_pattern")
    with pytest.raises(HookError, match=r"blocks.0.attn.hook_pattern' needs the whole sequence in one call"):
        model.run_with_cache(tokens[:, :1], cache=cache, names="*.hook_pattern")
    model(tokens[:, :1], cache=cache)


@EVERY
@pytest.mark.parametrize("pattern", ["111111100", "001111111", "110101101"])
def test_padding_between_calls_changes_nothing(variant, pattern):
    model, tokens, more = tiny_model(variant, dtype=torch.float64), tiny_tokens(), tiny_tokens(length=4, seed=9)
    keep = torch.tensor([[character == "1" for character in pattern]]).expand(2, -1)
    cache = KVCache(model.cfg)
    parts = [model(tokens, attention_mask=keep, cache=cache)[:, keep[0]], model(more, cache=cache)]
    assert close(torch.cat(parts, 1), model(torch.cat((tokens[:, keep[0]], more), 1)))


@EVERY
def test_a_state_does_not_grow_and_is_not_overwritten(variant):
    model = tiny_model(variant)
    cache = KVCache(model.cfg)
    model(tiny_tokens(length=5), cache=cache)
    kept = cache.state(0)
    copies = {name: tensor.clone() for name, tensor in kept.items()}
    model(tiny_tokens(length=7), cache=cache)
    for name, tensor in cache.state(0).items():
        assert tensor.shape == kept[name].shape and torch.equal(kept[name], copies[name]), name
    assert cache.state(0)["state"].dtype == torch.float32


@pytest.mark.parametrize("variant", ["mamba2", "gated_delta_hybrid"])
def test_a_call_that_fails_leaves_the_states_as_they_were(variant):
    model, tokens = tiny_model(variant), tiny_tokens()
    cache = KVCache(model.cfg)
    model(tokens[:, :4], cache=cache)
    with pytest.raises(HookError, match="wanted"):
        model.run_with_hooks(tokens[:, 4:], cache=cache, fwd_hooks=[("blocks.2.attn.hook_z", lambda z, hook: z[0])])
    assert torch.allclose(model(tokens[:, 4:], cache=cache), model(tokens)[:, 4:], atol=1e-5)


def test_half_precision_keeps_its_states_in_float32():
    for variant in VARIANTS:
        model = tiny_model(variant)
        full, half = model(tiny_tokens()), model.to(torch.bfloat16)
        cache = KVCache(half.cfg)
        logits = half(tiny_tokens(), cache=cache)
        assert logits.dtype == torch.bfloat16 and cache.state(0)["state"].dtype == torch.float32
        assert (logits.float() - full).abs().max() < 0.3 * full.abs().max(), variant


def test_a_gate_that_closes_silences_its_head():
    model, tokens = tiny_model("retnet"), tiny_tokens()

    def close_first(gate, hook):
        gate[:, :, 0] = 0

    with model.hooks([(f"{ATTN}hook_gate", close_first)]):
        z = model.run_with_cache(tokens, names=[f"{ATTN}hook_z"])[1][f"{ATTN}hook_z"]
    assert z[:, :, 0].abs().max() == 0 < z[:, :, 1:].abs().min(dim=-1).values.max()


def test_retnet_is_its_formula():
    model, cache = run("retnet")
    attn, x = model.blocks[0].attn, cache["blocks.0.ln1.hook_normalized"]
    step = attn.out_steps["gated_norm"]
    q, k, v = (cache[f"{ATTN}hook_{name}"] for name in ("rot_q", "rot_k", "v"))
    gamma = retention_log_decay(4).exp()
    z = torch.zeros_like(v)
    for h in range(4):
        for i in range(9):
            for j in range(i + 1):
                z[:, i, h] += gamma[h] ** (i - j) * (q[:, i, h] * k[:, j, h]).sum(-1, keepdim=True) * 8**-0.5 * v[:, j, h]
    normed = z / (z.square().mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt() * step.weight
    gate = F.silu(x @ step.gate.weight.T).unflatten(-1, (4, 8))
    assert close((normed * gate).flatten(2) @ attn.o.weight.T, cache["blocks.0.hook_attn_out"])


def test_katharopoulos_is_its_formula():
    model, cache = run("katharopoulos")
    x, attn = cache["blocks.0.ln1.hook_normalized"], model.blocks[0].attn
    q, k, v = (
        torch.einsum("bpd,hde->bphe", x, w) + b for w, b in ((attn.W_Q, attn.b_Q), (attn.W_K, attn.b_K), (attn.W_V, attn.b_V))
    )
    q, k = (torch.where(each > 0, each + 1, each.exp()) for each in (q, k))
    for h in range(4):
        weights = torch.tril(torch.einsum("bqd,bkd->bqk", q[:, :, h], k[:, :, h // 2]))
        z = weights / weights.sum(-1, keepdim=True) @ v[:, :, h // 2]
        assert close(z, cache[f"{ATTN}hook_z"][:, :, h])
    assert close(cache[f"{ATTN}hook_attn_scores"].softmax(-1), cache[f"{ATTN}hook_pattern"])


def test_the_skip_of_mamba2_bypasses_the_pattern():
    model, tokens = tiny_model("mamba2", dtype=torch.float64), tiny_tokens()
    attn = model.blocks[0].attn
    with model.hooks([(f"{ATTN}hook_pattern", lambda pattern, hook: pattern * 0)]):
        cache = model.run_with_cache(tokens, names=[f"{ATTN}hook_{name}" for name in ("v", "gate", "z", "mixed")])[1]
    assert cache[f"{ATTN}hook_mixed"].abs().max() == 0
    gated_v = (cache[f"{ATTN}hook_v"] * attn.D[:, None] * cache[f"{ATTN}hook_gate"]).flatten(2).unflatten(2, (2, -1))
    normed = gated_v / (gated_v.square().mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt()
    assert close(cache[f"{ATTN}hook_z"], (normed.flatten(2) * attn.out_steps["gated_norm"].weight).unflatten(2, (4, 12)))


def test_weights_of_shared_keys_are_copies_per_head():
    model, cache = run("gated_delta_hybrid", qkv_bias=False)
    attn = model.blocks[0].attn
    assert attn.W_Q.shape == attn.W_K.shape == (4, 32, 6) and attn.W_V.shape == (4, 32, 5)
    assert torch.equal(attn.W_K[0], attn.W_K[1]) and not torch.equal(attn.W_K[1], attn.W_K[2])
    assert torch.equal(cache[f"{ATTN}hook_k"][:, :, 2], cache[f"{ATTN}hook_k"][:, :, 3])
    assert not attn.linear_reads and tiny_model("katharopoulos").blocks[0].attn.linear_reads


@EVERY
def test_configs_survive_json(variant):
    cfg = tiny_config(variant)
    assert TransformerConfig.from_json(cfg.to_json()) == cfg


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"causal": False}, "mixer='mamba2' reads tokens in order and sees all before; it cannot be had with causal=False"),
        ({"window": 4}, "cannot be had with mask='sliding'"),
        ({"normaliser": "sigmoid"}, "mixer='mamba2' has no scores to normalise, got normaliser='sigmoid'"),
        ({"linear": LinearConfig(n_key_heads=3)}, "n_heads must be a multiple of linear.n_key_heads, got 4 and 3"),
        ({"linear": LinearConfig(norm_groups=5)}, "linear.norm_groups must divide n_heads \\* d_value=48, got 5"),
    ],
)
def test_a_mixer_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_model("mamba2", **changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conv_width": -1}, "linear.conv_width must be 0 or more, got -1"),
        ({"max_beta": 0.0}, "linear.max_beta must be positive, got 0.0"),
        ({"decay": "slow"}, "linear.decay must be one of none, retention, lightning.*'slow'"),
        ({"gate_activation": "tanh"}, "linear.gate_activation must be one of silu, sigmoid.*'tanh'"),
        ({"qkv_activation": "swish"}, "linear.qkv_activation must be one of"),
    ],
)
def test_bad_settings_get_one_sentence(options, message):
    with pytest.raises(ConfigError, match=message):
        LinearConfig(**options)


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("mamba2", {"use_bias": True}, "use_bias=True .* is not supported for mamba2"),
        ("mamba2", {"time_step_limit": [0.01, 0.1]}, "time_step_limit=.* is not supported for mamba2"),
        ("minimax", {"mlp_beta_factor": 2.0}, "beta factors of attention and MLP must be equal, got 1.0, 2.0"),
        ("minimax", {"layer_types": ["full_attention", "chunked_attention", "linear_attention"]}, "holds 'chunked_attention'"),
        ("kimi linear", {"moe_layer_freq": 2}, "moe_layer_freq=2 .* is not supported for kimi_linear"),
    ],
)
def test_options_of_checkpoints_that_we_lack_are_refused(case, changes, message):
    case = CASES[case]
    hf = {
        **case.options,
        "model_type": {"Mamba2Config": "mamba2", "MiniMaxConfig": "minimax"}.get(case.config_class, "kimi_linear"),
    }
    family = FAMILIES[hf["model_type"]]
    family.to_config(hf)
    with pytest.raises(ConfigError, match=message):
        family.to_config({**hf, **changes})


@pytest.mark.parametrize("argument", [{"documents": torch.zeros(2, 9, dtype=torch.long)}, {"prefix": 3}])
def test_masks_that_a_state_cannot_follow_are_refused(argument):
    with pytest.raises(InputError, match="layer 0 reads tokens in order and sees all before: documents, prefix and visible"):
        tiny_model("kimi_delta")(tiny_tokens(), **argument)
