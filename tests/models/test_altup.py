"""Models with several streams (Gemma 3n): the formulas, what each hook of a stream is, and what one stream is not enough for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from interp.circuits import CircuitError, Graph
from models import ConfigError, HookedTransformer, HookError, InputError, load_model
from models.config import AltUpConfig
from models.loading.families import FAMILIES
from tests.models.variants import tiny_config, tiny_model, tiny_tokens
from tests.oracles.cases_gemma3n import CASES

BOTH = pytest.mark.parametrize("variant", ["gemma3n", "altup"])
EPS = 1e-5


def rms(x: torch.Tensor, gain: torch.Tensor | float = 1.0) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt() * gain


def modes(altup: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(rms(x, altup.norm_weight) / 32 @ altup.router.weight.T)


def as_long_as(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return x * other.norm(dim=-1, keepdim=True) / x.norm(dim=-1, keepdim=True)


@BOTH
def test_a_block_is_the_formula(variant):
    """What attention, the MLP and the reading of the layer's embedding give is taken from their hooks."""
    model = tiny_model(variant, dtype=torch.float64)
    active, n = model.cfg.altup.active, model.cfg.altup.n_streams
    _, cache = model.run_with_cache(tiny_tokens(), names="*")
    for layer, block in enumerate(model.blocks):
        at, altup, laurel = lambda name, layer=layer: cache[f"blocks.{layer}.{name}"], block.altup, block.laurel
        before = at("hook_streams_pre")
        mix = (modes(altup, before[active]) @ altup.predicting.weight.T).unflatten(-1, (n, n))
        predicted = [before[to] + sum(mix[..., to, of, None] * before[of] for of in range(n)) for to in range(n)]
        assert torch.allclose(predicted[active], at("hook_resid_pre"), atol=1e-12)
        normed = rms(predicted[active], block.ln1.weight)
        branch = normed + rms(normed @ laurel.left.weight.T @ laurel.right.weight.T, laurel.norm.weight)
        assert torch.allclose(branch, at("hook_laurel_out"), atol=1e-12)
        mid = (predicted[active] + at("hook_attn_out") + branch) / 2**0.5
        late = mid + at("hook_mlp_out")
        assert torch.allclose(mid, at("hook_resid_mid"), atol=1e-12) and torch.allclose(late, at("hook_resid_late"), atol=1e-12)
        share = modes(altup, late) @ altup.correcting.weight.T + 1
        after = [predicted[to] + share[..., to, None] * (late - predicted[active]) for to in range(n)]
        x = after[active] * (1 if altup.read_scale is None else altup.read_scale)
        gate = F.gelu(x @ block.layer_embed.gate.weight.T, approximate="tanh")
        out = rms((gate * at("hook_layer_embed")) @ block.layer_embed.out.weight.T, block.layer_embed.norm.weight)
        assert torch.allclose(out, at("hook_layer_out"), atol=1e-10)
        after = [stream + (out if to else 0) for to, stream in enumerate(after)]
        assert torch.allclose(torch.stack(after), at("hook_streams_post"), atol=1e-10)


@BOTH
def test_streams_enter_leave_and_are_handed_on(variant):
    model = tiny_model(variant, dtype=torch.float64)
    active, ways = model.cfg.altup.active, model.streams
    logits, cache = model.run_with_cache(tiny_tokens())
    x, first, last = cache["hook_embed"], cache["blocks.0.hook_streams_pre"], cache["blocks.2.hook_streams_post"]
    assert torch.allclose(first, torch.stack([x, *(as_long_as(x @ weight.T, x) for weight in ways.enter_proj)]), atol=1e-10)
    others = [as_long_as(stream @ weight.T, last[0]) for stream, weight in zip(last[1:], ways.leave_proj, strict=True)]
    merged = torch.stack([last[0], *others]).mean(0)
    assert torch.allclose(merged, cache["streams.hook_merged"], atol=1e-10)
    assert torch.allclose(model(tiny_tokens(), stop_at_layer=3), merged, atol=1e-10)
    assert torch.allclose(model.unembed_resid(merged), logits, atol=1e-10)
    for layer in range(3):
        assert torch.equal(cache["resid_post", layer], cache[f"blocks.{layer}.hook_streams_post"][active])
        assert layer == 2 or torch.equal(cache["streams_post", layer], cache["streams_pre", layer + 1])


@BOTH
def test_patching_all_streams_restores_a_run_and_one_stream_does_not(variant):
    model, clean, other = tiny_model(variant), tiny_tokens(), tiny_tokens(seed=7)
    wanted, cache = model.run_with_cache(clean)
    # Layer 2 also reads the tokens through its own embedding and keys of layer 0, so these are put back too.
    rest = [
        name
        for name in cache
        if name.startswith(("blocks.0.attn.hook_rot_k", "blocks.0.attn.hook_v", "blocks.2.hook_layer_embed"))
    ]
    streams = "blocks.2.hook_streams_pre"
    restore = lambda tensor, hook: cache[hook.name]  # noqa: E731
    assert torch.allclose(model.run_with_hooks(other, fwd_hooks=[([streams, *rest], restore)]), wanted, atol=1e-5)
    one = model.run_with_hooks(other, fwd_hooks=[(["blocks.1.hook_resid_post", *rest], restore)])
    assert (one - wanted).abs().max() > 1e-2


def test_an_edit_of_resid_pre_is_one_of_the_stream():
    """The correction compares with the edited stream: where the block then changes nothing, the edit is what is handed on."""
    model, tokens = tiny_model("gemma3n", dtype=torch.float64), tiny_tokens()
    value = torch.randn(2, 9, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    edits = [("blocks.0.hook_resid_pre", lambda x, hook: value), ("blocks.0.hook_resid_late", lambda x, hook: value)]
    with model.hooks(edits):
        _, cache = model.run_with_cache(tokens)
    assert torch.allclose(cache["resid_post", 0], value, atol=1e-12)


def test_gradients_with_respect_to_a_cached_stream_are_whole():
    model, tokens = tiny_model("gemma3n", dtype=torch.float64), tiny_tokens()
    step = torch.randn(2, 9, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name in ("blocks.1.hook_resid_pre", "blocks.0.hook_resid_post"):
        logits, cache = model.run_with_cache(tokens, names=name, detach=False)
        slope = (torch.autograd.grad(logits[..., 3].sum(), cache[name])[0] * step).sum()
        up, down = (
            model.run_with_hooks(tokens, fwd_hooks=[(name, lambda x, hook, by=by: x + by * step)])[..., 3].sum()
            for by in (1e-5, -1e-5)
        )
        assert torch.allclose((up - down) / 2e-5, slope, rtol=1e-5), name


def test_gates_are_cut_at_the_quantile():
    model = tiny_model("gemma3n", dtype=torch.float64, d_mlp=4000)
    _, cache = model.run_with_cache(tiny_tokens())
    gate, kept = cache["blocks.0.mlp.hook_uncut"], cache["pre", 0]
    cut = gate.mean(-1, keepdim=True) + gate.var(-1, keepdim=True, correction=0).sqrt() * 0.5244005127080407
    assert torch.allclose(kept, (gate - cut).clamp(min=0), atol=1e-12)
    assert abs((kept > 0).double().mean() - 0.3) < 0.02
    post = F.gelu(kept, approximate="tanh") * cache["pre_linear", 0, "mlp"]
    assert torch.allclose(post, cache["post", 0], atol=1e-12)
    assert "blocks.1.mlp.hook_uncut" not in model.hook_names


def test_both_ends_can_be_run_alone_and_nothing_between():
    model, tokens = tiny_model("altup", d_layer_embed=0), tiny_tokens()
    logits = model(tokens)
    assert torch.equal(model(model(tokens, stop_at_layer=0), start_at_layer=0), logits)
    assert torch.equal(model(model(tokens, stop_at_layer=3), start_at_layer=3), logits)
    resid = model(tokens, stop_at_layer=0)
    for options in ({"start_at_layer": 1}, {"start_at_layer": 0, "stop_at_layer": 2}, {"start_at_layer": 2, "stop_at_layer": 2}):
        with pytest.raises(
            InputError, match="must be 0 or 3 in this model, got .*: between its blocks there are several streams"
        ):
            model(resid, **options)
    with pytest.raises(HookError, match="streams.hook_merged.*cannot run"):
        model.run_with_hooks(resid, start_at_layer=3, fwd_hooks=[("streams.hook_merged", lambda x, hook: x)])
    doubled = model.run_with_hooks(tokens, stop_at_layer=3, fwd_hooks=[("streams.hook_merged", lambda x, hook: 2 * x)])
    assert torch.equal(doubled, 2 * model(tokens, stop_at_layer=3))
    with pytest.raises(InputError, match="leave out start_at_layer"):
        tiny_model("gemma3n")(resid, start_at_layer=0)


def test_circuits_are_refused():
    with pytest.raises(CircuitError, match="altup blocks keep several side by side"):
        Graph.of(tiny_model("altup", d_layer_embed=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"altup": None}, "block='altup' and the field altup go together"),
        ({"block": "sandwich", "d_layer_embed": 0}, "block='altup' and the field altup go together"),
        ({"layer_types": ("a", "a", "b"), "by_type": {"b": {"altup": AltUpConfig()}}}, "altup must be the same in all layers"),
        (
            {"mlp_sparsity": 0.5},
            "mlp_sparsity lies between 0 and 1 where mlp='sparse_gated', and is 0 elsewhere; got 0.5 and 'gated'",
        ),
        ({"mlp": "sparse_gated"}, "mlp_sparsity lies between 0 and 1"),
    ],
)
def test_clear_messages_about_configs(changes, message):
    with pytest.raises(ConfigError, match=message):
        HookedTransformer(tiny_config("altup", **changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_streams": 1}, "altup.n_streams must be at least 2, got 1"),
        ({"active": 4}, "altup.active must be one of the streams 0 to 3, got 4"),
        ({"laurel_rank": 0}, "altup.laurel_rank must be at least 1, got 0"),
    ],
)
def test_clear_messages_about_streams(options, message):
    with pytest.raises(ConfigError, match=message):
        AltUpConfig(**options)


def test_published_configs() -> None:
    """The 4B model's sizes are the family's defaults."""
    cfg = FAMILIES["gemma3n"].to_config({"text_config": {"model_type": "gemma3n_text"}})
    assert (cfg.n_layers, cfg.d_model, cfg.d_mlp, cfg.n_kv_heads, cfg.altup) == (35, 2048, 16_384, 2, AltUpConfig())
    assert (cfg.d_vocab, cfg.d_layer_vocab, cfg.d_layer_embed, cfg.logit_softcap) == (262_400, 262_144, 256, 30.0)
    assert [cfg.for_layer(layer).mlp_sparsity for layer in (0, 9, 10, 34)] == [0.95, 0.95, 0, 0]
    assert [cfg.for_layer(layer).kv_from for layer in (18, 19, 20, 24)] == [-1, -1, 18, 19]
    assert [(cfg.for_layer(layer).mask, cfg.for_layer(layer).rotary.base) for layer in (3, 4)] == [
        ("sliding", 1e4),
        ("full", 1e6),
    ]
    with pytest.raises(ConfigError, match="intermediate_size must have a value for each of 35 layers, got 2"):
        FAMILIES["gemma3n"].to_config({"intermediate_size": [8, 8]})
    with pytest.raises(
        ConfigError, match="'intermediate_size' .* must be a positive whole number, or a list with one for each layer"
    ):
        FAMILIES["gemma3n"].to_config({"intermediate_size": [8, 0.5]})


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_multimodal_files_give_their_text_part(tmp_path: Path, prefix: str) -> None:
    """Their tensors under the names that published files have, beside those of the towers."""
    pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")
    from tests.oracles.hf_models import hf_model, save_case

    theirs = hf_model(CASES["gemma3n"])
    save_case(CASES["gemma3n"], theirs, tmp_path)
    tokens = tiny_tokens()
    wanted = load_model(tmp_path)(tokens)
    tensors = {name.replace("model.", prefix, 1): tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    towers = (
        "vision_tower.timm_model.x",
        "audio_tower.conformer.0.x",
        "embed_vision.embedding.weight",
        "embed_audio.embedding.weight",
    )
    save_file(tensors | {f"model.{name}": torch.ones(2, 2) for name in towers}, tmp_path / "model.safetensors")
    text = json.loads((tmp_path / "config.json").read_text())
    whole = {"model_type": "gemma3n", "text_config": text, "vision_config": {"hidden_size": 16}, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    assert torch.equal(load_model(tmp_path)(tokens), wanted)
