"""Checkpoint folders: shards, prefixes, dtypes, memory, and every kind of bad input, each answered with one sentence."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from models import CheckpointError, ConfigError, TransformerConfig, load_model
from models.loading.fill import MappingSource, Weight, build_model
from models.loading.load import check_options
from models.loading.paths import user_path

LLAMA = {
    "model_type": "llama",
    "vocab_size": 20,
    "hidden_size": 12,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "eos_token_id": [3, 4],
}
TOKENS = torch.arange(1, 11)[None]


def llama_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    """Random tensors under Llama's names, for the config above."""
    shapes = {"model.embed_tokens.weight": (20, 12), "model.norm.weight": (12,), "lm_head.weight": (20, 12)}
    for layer in ("model.layers.0.", "model.layers.1."):
        shapes |= {layer + "input_layernorm.weight": (12,), layer + "post_attention_layernorm.weight": (12,)}
        shapes |= {layer + "self_attn.q_proj.weight": (12, 12), layer + "self_attn.o_proj.weight": (12, 12)}
        shapes |= {layer + "self_attn.k_proj.weight": (4, 12), layer + "self_attn.v_proj.weight": (4, 12)}
        shapes |= {
            layer + "mlp.gate_proj.weight": (16, 12),
            layer + "mlp.up_proj.weight": (16, 12),
            layer + "mlp.down_proj.weight": (12, 16),
        }
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA if config is None else config))
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny", llama_tensors())


def shard(folder: Path) -> dict[str, str]:
    """Split model.safetensors of a folder into two shards with an index; returns the weight map."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {name: f"model-0000{1 + (place >= 9)}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(weight_map.values()):
        save_file({name: tensors[name] for name in names if weight_map[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def test_config_and_weights_arrive(folder: Path) -> None:
    model = load_model(folder)
    tensors = llama_tensors()
    assert (model.cfg.name, model.cfg.family, model.cfg.n_ctx, model.cfg.eos_token_ids) == ("tiny", "llama", 32, (3, 4))
    assert torch.equal(model.blocks[1].mlp.up.weight, tensors["model.layers.1.mlp.up_proj.weight"])
    assert torch.equal(model.W_U, tensors["lm_head.weight"].T)
    assert not model.training and model.tokenizer is None
    assert not any(parameter.is_meta for parameter in model.parameters())


def test_path_may_be_a_string(folder: Path) -> None:
    assert torch.equal(load_model(str(folder))(TOKENS), load_model(folder)(TOKENS))


def test_shards_give_the_same_model(folder: Path) -> None:
    wanted = load_model(folder)(TOKENS)
    shard(folder)
    assert torch.equal(load_model(folder)(TOKENS), wanted)


def test_a_single_file_goes_before_an_index(folder: Path) -> None:
    """As in Hugging Face's reading of a folder that has both."""
    shard(folder)
    wanted = load_model(write(folder, llama_tensors(seed=1)))(TOKENS)
    (folder / "model.safetensors.index.json").unlink()
    assert torch.equal(load_model(folder)(TOKENS), wanted)


def test_base_model_names_give_the_same_model(folder: Path) -> None:
    """A checkpoint of the bare decoder has the same tensors without the prefix, and no unembedding, so it must be tied."""
    config = {**LLAMA, "tie_word_embeddings": True}
    full = load_model(write(folder, llama_tensors(), config))
    assert full.unembed.weight is full.embed.weight
    bare = {name.removeprefix("model."): tensor for name, tensor in llama_tensors().items() if name != "lm_head.weight"}
    assert torch.equal(load_model(write(folder, bare, config))(TOKENS), full(TOKENS))


def test_buffers_of_older_checkpoints_are_passed_over(folder: Path) -> None:
    write(folder, {**llama_tensors(), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)})
    assert load_model(folder)(TOKENS).shape == (1, 10, 20)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float64])
def test_dtypes(folder: Path, stored: torch.dtype, wanted: torch.dtype) -> None:
    write(folder, {name: tensor.to(stored) for name, tensor in llama_tensors().items()})
    model = load_model(folder, dtype=wanted)
    assert {parameter.dtype for parameter in model.parameters()} == {wanted}
    assert torch.equal(model.embed.weight, llama_tensors()["model.embed_tokens.weight"].to(stored).to(wanted))
    assert model(TOKENS).isfinite().all()


def test_dtype_too_narrow_for_a_weight(folder: Path) -> None:
    tensors = llama_tensors()
    tensors["model.norm.weight"][2] = 1e30
    with pytest.raises(CheckpointError, match="'model.norm.weight'.*too large for torch.float16"):
        load_model(write(folder, tensors), dtype=torch.float16)


def test_n_ctx_can_be_chosen(folder: Path) -> None:
    assert load_model(folder, n_ctx=8).cfg.n_ctx == 8
    assert load_model(folder, n_ctx=64)(torch.ones(1, 60, dtype=torch.long)).shape == (1, 60, 20)


def anonymous_bytes() -> int:
    """Memory of this process that no file backs, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure memory")
@pytest.mark.parametrize("stored, most", [(torch.float32, 0.1), (torch.bfloat16, 1.15)])
def test_weights_are_not_held_twice(tmp_path: Path, stored: torch.dtype, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor in the wanted dtype stays in the mapped file; one that is converted costs its new size, and no more on the way."""
    from models.loading import fill

    tensors = {name: tensor.to(stored) for name, tensor in llama_tensors().items()}
    large = {name: torch.ones(1_000_000, 12, dtype=stored) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    folder = write(tmp_path / "large", {**tensors, **large}, {**LLAMA, "vocab_size": 1_000_000})
    del large
    seen, checked = [], fill._checked
    monkeypatch.setattr(fill, "_checked", lambda *args: (checked(*args), seen.append(anonymous_bytes()))[0])
    before = anonymous_bytes()
    model = load_model(folder)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    assert max(seen) - before < most * weights
    assert model.W_E.shape == (1_000_000, 12)


def test_loading_leaves_the_file_alone(folder: Path) -> None:
    before = (folder / "model.safetensors").read_bytes()
    model = load_model(folder)
    with torch.no_grad():
        model.embed.weight.zero_()
    assert (folder / "model.safetensors").read_bytes() == before


def sentence(error: pytest.ExceptionInfo[Exception]) -> str:
    message = str(error.value)
    assert "\n" not in message and len(message) < 600
    return message


def refused(source: Any, kind: type[Exception] = CheckpointError, **options: Any) -> str:
    with pytest.raises(kind) as error:
        load_model(source, **options)
    return sentence(error)


def test_missing_path_names_the_known_models(tmp_path: Path) -> None:
    message = refused("smollm2-135")
    assert "'smollm2-135'" in message and "nothing is downloaded" in message and "did you mean 'smollm2-135m'" in message
    assert str(tmp_path / "absent") in refused(tmp_path / "absent")


def test_other_files_are_refused(folder: Path, tmp_path: Path) -> None:
    assert "loaded by their folder" in refused(folder / "model.safetensors")
    assert "no config.json" in refused(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "last.ckpt", "model.pkl", "x.PT"])
def test_pickles_are_refused_unopened(folder: Path, name: str) -> None:
    """Both as a file and as the only weights of a folder; the content, which is no pickle, is never looked at."""
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"not even a pickle")
    for source in (folder, folder / name):
        message = refused(source)
        assert "pickled" in message and name in message and "convert it to safetensors" in message


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "wanted model.safetensors, or shards with model.safetensors.index.json" in refused(folder)


@pytest.mark.parametrize(
    "text, said", [("{", "not valid JSON"), ("[1]", "must hold a JSON object, got list"), ("\x00", "not valid JSON")]
)
def test_config_that_is_not_json(folder: Path, text: str, said: str) -> None:
    (folder / "config.json").write_text(text)
    message = refused(folder)
    assert said in message and "config.json" in message


def test_unknown_family_names_the_nearest_and_where_all_are_listed(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**LLAMA, "model_type": "lama"}))
    message = refused(folder)
    assert "model_type 'lama'" in message and "docs/families.md" in message and "did you mean 'llama'" in message
    for config, said in (("{}", "model_type None"), ('{"model_type": ["llama"]}', "model_type ['llama']")):
        (folder / "config.json").write_text(config)
        assert said in refused(folder)


@pytest.mark.parametrize("kept", [0, 5, 8, 100, 0.5, 0.999])
def test_truncated_safetensors(folder: Path, kept: float) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    message = refused(folder)
    assert "damaged or incomplete" in message and "model.safetensors" in message


def test_safetensors_with_an_absurd_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    assert "damaged or incomplete" in refused(folder)


def test_missing_tensors_are_named(folder: Path) -> None:
    tensors = llama_tensors()
    del tensors["lm_head.weight"]
    assert "lacks tensor 'lm_head.weight'" in refused(write(folder, tensors))
    few = {name: tensor for name, tensor in tensors.items() if ".0." not in name}
    message = refused(write(folder, few))
    assert "'model.layers.0.input_layernorm.weight'" in message and "7 more" in message


def test_unexpected_tensors_are_named(folder: Path) -> None:
    write(folder, {**llama_tensors(), "model.layers.0.self_attn.q_proj.bias": torch.ones(12)})
    assert "holds tensor 'model.layers.0.self_attn.q_proj.bias', which its config does not account for" in refused(folder)


def test_wrong_shape_is_told_before_anything_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.loading.safetensors_folder import SafetensorsFolder

    monkeypatch.setattr(SafetensorsFolder, "read", lambda *args: pytest.fail("a tensor was read"))
    message = refused(write(folder, {**llama_tensors(), "model.layers.1.mlp.down_proj.weight": torch.ones(12, 15)}))
    assert "'model.layers.1.mlp.down_proj.weight'" in message and "[12, 15]" in message and "[12, 16]" in message
    assert "model.safetensors" in message


def test_scalar_in_place_of_a_matrix(folder: Path) -> None:
    assert "shape []" in refused(write(folder, {**llama_tensors(), "lm_head.weight": torch.tensor(1.0)}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_weights_that_are_not_numbers(folder: Path, value: float, stored: torch.dtype) -> None:
    tensors = {name: tensor.to(stored) for name, tensor in llama_tensors().items()}
    tensors["model.layers.1.self_attn.v_proj.weight"][3, 11] = value
    message = refused(write(folder, tensors))
    assert "'model.layers.1.self_attn.v_proj.weight'" in message and "NaN or infinite" in message


def test_whole_numbers_are_refused(folder: Path) -> None:
    tensors = {**llama_tensors(), "model.norm.weight": torch.ones(12, dtype=torch.int8)}
    assert "'model.norm.weight'" in (message := refused(write(folder, tensors))) and "torch.int8" in message


@pytest.mark.parametrize(
    "file", ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..\\model.safetensors", 3, "model.bin"]
)
def test_shard_names_may_not_leave_the_folder(folder: Path, file: Any) -> None:
    weight_map = shard(folder)
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder.parent / "model.safetensors")
    weight_map["model.norm.weight"] = file
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    message = refused(folder)
    assert "'model.norm.weight'" in message and "in the folder" in message


def test_missing_shard(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "names model-00002-of-00002.safetensors, which is not in the folder" in refused(folder)


def test_index_that_promises_too_much(folder: Path) -> None:
    weight_map = shard(folder)
    weight_map["model.norm.weight"] = "model-00001-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert "holds 'model.norm.weight', which it does not" in refused(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": []}))
    assert "no 'weight_map'" in refused(folder)


def test_absurd_number_of_layers(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 10**9}))
    assert "states 1000000000 layers, but the checkpoint has only 21 tensors" in refused(folder, ConfigError)


@pytest.mark.parametrize("field", ["vocab_size", "hidden_size", "intermediate_size"])
@pytest.mark.parametrize(
    ("size", "error", "said"),
    [(10**18, CheckpointError, "too large for any file"), (10**25, ConfigError, "must be a whole number")],
)
def test_sizes_beyond_any_file(folder: Path, field: str, size: int, error: type, said: str) -> None:
    (folder / "config.json").write_text(json.dumps({**LLAMA, field: size, "head_dim": 4}))
    assert said in refused(folder, error)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"dtype": torch.int64}, "dtype must be one of .*, got torch.int64"),
        ({"dtype": torch.float8_e4m3fn}, "dtype must be one of .*, got torch.float8_e4m3fn"),
        ({"dtype": "float32"}, "dtype must be one of .*, got 'float32'"),
        ({"device": "foo"}, "device must be one that this installation has, such as 'cpu', got 'foo'"),
        ({"device": "cuda:99"}, "device must be .* got 'cuda:99'"),
        ({"device": 5}, "device must be .* got 5"),
        ({"device": "meta"}, "device must be .* got 'meta'"),
        *(({"n_ctx": n_ctx}, "'n_ctx' in the call must be a positive whole number") for n_ctx in ("a", True, 0, -1, 2.0)),
    ],
)
def test_options_are_checked_before_the_checkpoint(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        check_options(**{"n_ctx": None, "dtype": torch.float32, "device": "cpu", **options})
    sentence(error)


def test_loading_checks_its_options() -> None:
    assert "'n_ctx'" in refused("no such folder", ConfigError, n_ctx=0)


@pytest.mark.parametrize("source", ["n" * 5000, "~nobody-of-this-name/x", "", None, 3])
def test_paths_that_cannot_be_looked_up(source: Any) -> None:
    with pytest.raises(CheckpointError, match="^the model (must be a path|'?.* cannot be looked up)") as error:
        user_path(source, "the model")
    sentence(error)
    assert "the model's name or path" in refused("n" * 5000)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.gguf")
    assert "neither a checkpoint folder nor a .gguf file" in refused(tmp_path / "f.gguf")


def test_a_source_without_a_place_for_a_parameter() -> None:
    cfg = TransformerConfig(n_layers=1, d_model=4, n_heads=1, d_head=4, d_vocab=5, n_ctx=6)
    with pytest.raises(CheckpointError, match="no tensor for the parameter 'pos_embed.weight'"):
        build_model(cfg, MappingSource({}, "nowhere"), {"embed.weight": Weight("embed")})


def test_the_file_is_what_safetensors_says(folder: Path) -> None:
    """The header's names and shapes, against the library's own reading."""
    from models.loading.safetensors_folder import SafetensorsFolder

    source = SafetensorsFolder(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert {name: source.shape(name) for name in source.names()} == {
            name: tuple(file.get_tensor(name).shape) for name in file.keys()
        }
