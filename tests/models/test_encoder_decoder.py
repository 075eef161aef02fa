"""Encoder-decoders: the hooks of both halves and of cross-attention, padding, decoding with a cache, saving, and mistakes."""

from __future__ import annotations

import pytest
import torch

from models import ConfigError, HookedEncoderDecoder, HookError, InputError, KVCache, TransformerConfig, load_model
from models.attention.context import AttentionContext
from models.config import RelativeConfig
from models.hooks import AXES
from tests.models.axis_sizes import axis_sizes

SIZES = {"d_model": 24, "d_head": 6, "d_vocab": 50, "n_ctx": 40, "d_mlp": 32}
T5 = {"norm": "rms_norm", "positions": "none", "score_terms": ("t5_bias",), "attn_scale": 1.0, "activation": "relu"}
T5 |= {"relative": RelativeConfig(n_buckets=6, max_distance=8)}
BART = {"block": "post", "final_norm": False, "position_offset": 2, "embed_norm": True, "qkv_bias": True, "out_bias": True}
SOURCE, TARGET = 11, 7

VARIANTS = {
    "t5": (T5, {"share_embeddings": True, "tie_embeddings": True}),
    "bart": (BART, {"share_embeddings": True, "unembed_bias": True}),
    "marian": ({"block": "post", "final_norm": False, "positions": "sinusoidal"}, {"d_vocab": 44}),
    "grouped": ({"norm": "rms_norm", "positions": "rotary", "gated_mlp": True, "n_kv_heads": 2}, {}),
    "attention only": ({"d_mlp": 0}, {}),
}
EVERY = pytest.mark.parametrize("variant", VARIANTS)


def tiny_config(variant: str, **changes) -> TransformerConfig:
    both, decoder = VARIANTS[variant]
    encoder = TransformerConfig(**(SIZES | {"n_layers": 2, "n_heads": 2, "causal": False, "head": "none"} | both))
    own = {"n_layers": 3, "n_heads": 4, "encoder": encoder, "cross_attention": True, "start_token_id": 3}
    return TransformerConfig(**(SIZES | own | both | decoder | changes))


def tiny_model(variant: str, dtype: torch.dtype = torch.float32, **changes) -> HookedEncoderDecoder:
    model = HookedEncoderDecoder(tiny_config(variant, **changes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() == 1 else 1.5 * parameter.shape[-1] ** -0.5
            start = 1.0 if name.endswith("weight") and parameter.dim() == 1 else 0.0
            parameter.copy_(start + spread * torch.randn(parameter.shape, generator=generator))
    return model.to(dtype)


def tokens(length: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 44, (2, length), generator=torch.Generator().manual_seed(seed))


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return tokens(SOURCE, 1), tokens(TARGET, 2)


def noise(tensor: torch.Tensor) -> torch.Tensor:
    return 0.3 * torch.rand(tensor.shape, generator=torch.Generator().manual_seed(3))


@EVERY
def test_every_hook_has_the_stated_shape(variant):
    model = tiny_model(variant)
    logits, cache = model.run_with_cache(*inputs(), names="*")
    assert logits.shape == (2, TARGET, model.cfg.d_vocab)
    assert set(cache) == set(model.hook_names)
    for name, tensor in cache.items():
        point, stack = model.hook_point(name), name.split(".")[0]
        cfg = model.cfg if stack == "decoder" else model.cfg.encoder
        sizes = axis_sizes(cfg, batch=2, pos=TARGET if stack == "decoder" else SOURCE)
        if ".cross_attn." in name:
            sizes |= {"key": SOURCE, "pos": SOURCE if name.endswith(("_k", "_v")) else TARGET}
        assert tensor.shape == tuple(sizes[axis] for axis in AXES[point.kind].split()), name


@EVERY
def test_cross_attention_has_the_hooks_of_attention(variant):
    names = tiny_model(variant).hook_names
    for hook in ("q", "k", "v", "attn_scores", "pattern", "z", "result"):
        assert f"decoder.blocks.1.cross_attn.hook_{hook}" in names
    assert {"decoder.blocks.1.hook_resid_cross", "decoder.blocks.1.hook_cross_attn_out"} <= set(names)
    assert not any(".cross_attn." in name for name in names if name.startswith("encoder."))


def test_hooks_are_listed_as_they_run():
    model = tiny_model("t5")
    ran, names = [], [name for name in model.hook_names if not name.endswith("_input")]
    with model.hooks([(names, lambda tensor, hook: ran.append(hook.name))]):
        model(*inputs())
    place = {name: at for at, name in enumerate(model.hook_names)}
    stacks = [name.split(".")[0] for name in model.hook_names]
    assert stacks == sorted(stacks, reverse=True)
    for earlier, later in (("hook_attn_out", "hook_resid_cross"), ("hook_resid_cross", "cross_attn.hook_q")):
        assert place[f"decoder.blocks.0.{earlier}"] < place[f"decoder.blocks.0.{later}"]
    assert sorted(ran) == sorted(names)


@EVERY
def test_reading_changes_nothing(variant):
    model = tiny_model(variant)
    plain = model(*inputs())
    cached, _ = model.run_with_cache(*inputs(), names="*")
    assert (plain - cached).abs().max() < 1e-5 * plain.abs().max()


@EVERY
def test_every_edit_changes_the_logits_in_place_and_returned_alike(variant):
    def in_place(tensor, hook):
        tensor += noise(tensor)

    model = tiny_model(variant)
    plain = model(*inputs())
    for name in model.hook_names:
        first = model.run_with_hooks(*inputs(), fwd_hooks=[(name, lambda tensor, hook: tensor + noise(tensor))])
        second = model.run_with_hooks(*inputs(), fwd_hooks=[(name, in_place)])
        assert torch.equal(first, second), name
        assert (first - plain).abs().max() > 1e-4, name


@EVERY
def test_cross_z_is_the_pattern_times_the_encoder_values(variant):
    model = tiny_model(variant)
    _, cache = model.run_with_cache(*inputs(), names="*")
    for layer, block in enumerate(model.decoder.blocks):
        seen = {name: cache[f"decoder.blocks.{layer}.cross_attn.hook_{name}"] for name in ("v", "pattern", "z", "result")}
        v = seen["v"].repeat_interleave(block.cross_attn.cfg.group_size, 2)
        assert torch.allclose(torch.einsum("bhqk,bkhd->bqhd", seen["pattern"], v), seen["z"], atol=1e-5)
        assert torch.allclose(torch.einsum("bqhd,hdm->bqhm", seen["z"], block.cross_attn.W_O), seen["result"], atol=1e-5)
        written = seen["result"].sum(2) + (0 if block.cross_attn.b_O is None else block.cross_attn.b_O)
        assert torch.allclose(written, cache[f"decoder.blocks.{layer}.hook_cross_attn_out"], atol=1e-5)


def test_cross_attention_reads_the_last_states_of_the_encoder():
    model = tiny_model("t5")
    states = model.encode(inputs()[0])
    _, cache = model.run_with_cache(*inputs())
    assert torch.allclose(cache["encoder.ln_final.hook_normalized"], states, atol=1e-5)
    assert torch.allclose(model.encoder.ln_final(cache["encoder.blocks.1.hook_resid_post"]), states, atol=1e-5)
    k = torch.einsum("bpd,hde->bphe", states, model.decoder.blocks[2].cross_attn.W_K)
    assert torch.allclose(k, cache["decoder.blocks.2.cross_attn.hook_k"], atol=1e-5)


def test_an_edited_cross_pattern_is_what_mixes_the_values():
    model = tiny_model("bart")

    def last_key(pattern, hook):
        pattern[:, 2] = 0
        pattern[:, 2, :, -1] = 1

    _, clean = model.run_with_cache(*inputs())
    with model.hooks([("decoder.blocks.1.cross_attn.hook_pattern", last_key)]):
        _, cache = model.run_with_cache(*inputs())
    at = "decoder.blocks.1.cross_attn.hook_"
    assert torch.allclose(cache[at + "z"][:, :, 2], cache[at + "v"][:, -1:, 2].expand(-1, TARGET, -1), atol=1e-6)
    assert torch.allclose(cache[at + "z"][:, :, [0, 1, 3]], clean[at + "z"][:, :, [0, 1, 3]], atol=1e-6)


@pytest.mark.parametrize("variant", ["t5", "grouped"])
def test_what_the_decoder_writes_adds_up(variant):
    model = tiny_model(variant, dtype=torch.float64)
    _, cache = model.run_with_cache(*inputs())
    stream = cache["decoder.blocks.0.hook_resid_pre"]
    for layer in range(3):
        stream = stream + sum(cache[f"decoder.blocks.{layer}.hook_{part}_out"] for part in ("attn", "cross_attn", "mlp"))
        assert torch.allclose(stream, cache[f"decoder.blocks.{layer}.hook_resid_post"], atol=1e-10)


@EVERY
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_the_source_gets_no_weight_and_changes_nothing(variant, side):
    model, (source, target) = tiny_model(variant), inputs()
    padding = tokens(4, 5)
    ones, zeros = torch.ones(2, SOURCE), torch.zeros(2, 4)
    order = ((padding, source), (zeros, ones)) if side == "left" else ((source, padding), (ones, zeros))
    padded, mask = torch.cat(order[0], 1), torch.cat(order[1], 1)
    logits, cache = model.run_with_cache(padded, target, attention_mask=mask)
    assert (logits - model(source, target)).abs().max() < 1e-5 * logits.abs().max()
    for layer in range(3):
        pattern = cache[f"decoder.blocks.{layer}.cross_attn.hook_pattern"]
        assert (pattern * (1 - mask)[:, None, None]).abs().max() == 0
        assert torch.allclose(pattern.sum(-1), torch.ones(()), atol=1e-5)


def test_the_first_query_sees_the_whole_source_and_the_decoder_none_of_its_future():
    _, cache = tiny_model("t5").run_with_cache(*inputs())
    assert cache["decoder.blocks.0.cross_attn.hook_pattern"][:, :, 0].min() > 0
    assert cache["encoder.blocks.0.attn.hook_pattern"][:, :, 0].min() > 0
    assert cache["decoder.blocks.0.attn.hook_pattern"].triu(1).max() == 0


@EVERY
def test_decoding_with_a_cache_is_the_whole_target_at_once(variant):
    model, (source, target) = tiny_model(variant), inputs()
    mask = (torch.arange(SOURCE) < torch.tensor([SOURCE, 8])[:, None]).long()
    whole = model(source, target, attention_mask=mask)
    for sizes in ([1] * TARGET, [3, 1, 3]):
        cache, parts, start = KVCache(model.cfg), [], 0
        for size in sizes:
            first = {"attention_mask": mask} if start == 0 else {}
            parts.append(model(source if start == 0 else None, target[:, start : start + size], cache=cache, **first))
            start += size
        assert (torch.cat(parts, 1) - whole).abs().max() < 1e-5 * whole.abs().max()


def test_the_cache_takes_the_keys_of_the_source_once_and_counts_them():
    model, (source, target) = tiny_model("bart"), inputs()
    calls, cache = [], KVCache(model.cfg)
    for block in model.decoder.blocks:
        block.cross_attn.k.register_forward_hook(lambda *args: calls.append(1))
    model(source, target[:, :1], cache=cache)
    before = cache.n_bytes
    model(None, target[:, 1:2], cache=cache)
    assert len(calls) == 3
    per_token = 2 * 3 * 24 * 2 * 4
    assert cache.n_bytes - before == per_token
    assert before == per_token + per_token * SOURCE + 2 * SOURCE * 24 * 4


def test_cross_hooks_run_at_every_step_of_decoding():
    model, (source, _) = tiny_model("t5"), inputs()

    def edit(tensor, hook):
        return tensor * 0.5 + 0.1

    plain = model.generate(source, 12)
    for name in (
        "decoder.blocks.0.cross_attn.hook_v",
        "decoder.blocks.1.cross_attn.hook_pattern",
        "encoder.blocks.0.hook_mlp_out",
    ):
        with model.hooks([(name, edit)]):
            with_cache, without = model.generate(source, 12), model.generate(source, 12, use_cache=False)
        assert torch.equal(with_cache, without), name
        assert not torch.equal(with_cache, plain), name


def test_generation_starts_with_the_start_token_or_a_given_target():
    model, (source, target) = tiny_model("t5"), inputs()
    written = model.generate(source, 5)
    assert written.shape == (2, 6) and (written[:, 0] == 3).all()
    logits = model(source, written[:, :-1])
    assert torch.equal(logits.argmax(-1), written[:, 1:])
    assert torch.equal(model.generate(source, 5, decoder_tokens=target)[:, :TARGET], target)
    with pytest.raises(InputError, match="start_token_id"):
        tiny_model("t5", start_token_id=None).generate(source, 5)


class Letters:
    """A tokeniser of small letters."""

    bos_token_id = None

    def encode(self, text: str, prepend_bos: bool = False) -> list[int]:
        return [ord(letter) - ord("a") + 5 for letter in text]

    def decode(self, ids) -> str:
        return "".join(chr(index % 26 + ord("a")) for index in ids)


def test_text_is_closed_with_eos():
    model = tiny_model("t5", eos_token_ids=(1,))
    model.tokenizer = Letters()
    ids = torch.tensor([[5, 6, 7, 1]])
    assert torch.equal(model("abc", [[3, 4]]), model(ids, [[3, 4]]))
    written = model.generate("abc", 4)
    assert isinstance(written, str) and written == model.to_string(model.generate(ids, 4)[0])
    assert model.generate(["abc", "abd"], 4)[0] == written
    assert model.generate("abc", 4, decoder_tokens="de") == model.to_string(model.generate(ids, 4, decoder_tokens=[[8, 9]])[0])


def test_loss_is_of_the_target():
    model, (source, target) = tiny_model("t5"), inputs()
    logits = model(source, target)
    wanted = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())
    assert torch.allclose(model(source, target, return_type="loss"), wanted)


def test_gradients_reach_the_encoder_and_the_one_table_of_all_layers():
    model = tiny_model("t5")
    tables = {id(block.attn.terms["t5_bias"].table) for block in model.decoder.blocks}
    assert len(tables) == 1 and len([name for name, _ in model.named_parameters() if name.endswith("table")]) == 2
    seen = []
    with model.hooks(bwd_hooks=[("encoder.blocks.0.hook_resid_pre", lambda gradient, hook: seen.append(gradient.abs().max()))]):
        model(*inputs(), return_type="loss").backward()
    assert seen[0] > 0
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())


@EVERY
def test_saving_and_loading(variant, tmp_path):
    model = tiny_model(variant)
    model.save(tmp_path)
    again = load_model(tmp_path)
    assert isinstance(again, HookedEncoderDecoder) and again.cfg == model.cfg
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert torch.equal(again(*inputs()), model(*inputs()))


def test_a_cache_refuses_what_it_cannot_do():
    model, (source, target) = tiny_model("t5"), inputs()
    cache = KVCache(model.cfg)
    with pytest.raises(InputError, match="tokens are missing"):
        model(None, target, cache=cache)
    model(source, target[:, :2], cache=cache)
    with pytest.raises(InputError, match="holds its source already"):
        model(source, target[:, 2:], cache=cache)
    with model.hooks([("encoder.hook_embed", lambda tensor, hook: tensor)]), pytest.raises(HookError, match="encoder.hook_embed"):
        model(None, target[:, 2:], cache=cache)

    def broken(tensor, hook):
        raise RuntimeError("stop")

    with model.hooks([("decoder.blocks.2.hook_mlp_out", broken)]), pytest.raises(RuntimeError):
        model(None, target[:, 2:], cache=cache)
    rest = model(None, target[:, 2:], cache=cache)
    assert (rest - model(source, target)[:, 2:]).abs().max() < 1e-5 * rest.abs().max()


def test_clear_messages_about_inputs():
    model, (source, target) = tiny_model("t5"), inputs()
    with pytest.raises(InputError, match="decoder_tokens are missing"):
        model(source)
    with pytest.raises(InputError, match="2 rows and decoder_tokens 1"):
        model(source, target[:1])
    with pytest.raises(InputError, match="decoder_attention_mask has shape"):
        model(source, target, decoder_attention_mask=torch.ones(2, 3))
    with pytest.raises(InputError, match="call the encoder-decoder model"):
        context = AttentionContext(model.cfg, torch.arange(2)[None], 0, None)
        model.decoder.blocks[0].cross_attn(torch.zeros(1, 2, 24), context)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cross_attention": False}, "cross_attention=True"),
        ({"encoder": None}, "share_embeddings is for models with an encoder"),
        ({"block": "parallel"}, "cross_attention needs block"),
        ({"d_vocab": 51}, "share_embeddings needs one vocabulary"),
        ({"d_model": 30}, "encoder.d_model must equal"),
        ({"start_token_id": 50}, "start_token_id must lie in 0 to 49"),
    ],
)
def test_clear_messages_about_configs(changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config("t5", **changes)


@pytest.mark.parametrize(
    ("changes", "field"), [({"n_buckets": 7}, "n_buckets"), ({"max_distance": 3, "n_buckets": 8}, "max_distance")]
)
def test_clear_messages_about_relative_positions(changes, field):
    with pytest.raises(ConfigError, match=f"relative.{field}"):
        RelativeConfig(**changes)
