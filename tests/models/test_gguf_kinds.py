"""GGUF files of each kind: logits against the Hugging Face model they were written from, and as transformers reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from models import CheckpointError, ConfigError, load_model
from models.encoder_decoder import HookedEncoderDecoder
from models.loading.fill import MappingSource
from models.loading.gguf_facts import Facts
from models.loading.gguf_header import Header, open_gguf, read_header
from models.loading.gguf_kinds import KINDS
from models.loading.gguf_latent import JoinedLatents

pytest.importorskip("gguf", reason="the gguf package, which dequantises, is not installed")
pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")

from tests.oracles import cases_encoders, cases_seq2seq, gguf_files  # noqa: E402
from tests.oracles.gguf_kinds import CASES, OLD, READ_BY_TRANSFORMERS, write_kind  # noqa: E402
from tests.oracles.hf_models import Case, hf_model  # noqa: E402
from tests.oracles.parity import relative_error  # noqa: E402

TOLERANCE = 1e-5
ENCODERS, SEQ2SEQ = ("bert", "roberta"), ("t5", "t5 v1.1", "umt5")


def tokens_of(seed: int, length: int = 24) -> torch.Tensor:
    return torch.randint(60, (2, length), generator=torch.Generator().manual_seed(seed))


def written(name: str, path: Path) -> Any:
    """The Hugging Face model of a case, written to a file."""
    architecture, case = CASES[name]
    theirs = hf_model(case)
    write_kind(path, architecture, theirs, old=name in OLD)
    return theirs


@pytest.mark.parametrize("name", list(CASES))
def test_logits(name: str, tmp_path: Path) -> None:
    theirs = written(name, tmp_path / "model.gguf")
    ours = load_model(tmp_path / "model.gguf")
    tokens = tokens_of(1)
    with torch.no_grad():
        assert relative_error(ours(tokens), theirs(input_ids=tokens).logits) < TOLERANCE


@pytest.mark.parametrize("name", READ_BY_TRANSFORMERS)
def test_transformers_reads_the_same(name: str, tmp_path: Path) -> None:
    """Its reader knows the tensors of these kinds, so that files are not ours to interpret alone."""
    from transformers import AutoModelForCausalLM

    config = written(name, tmp_path / "model.gguf").config
    read = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ours, tokens = load_model(tmp_path / "model.gguf"), tokens_of(2)
    with torch.no_grad():
        assert relative_error(ours(tokens), read(input_ids=tokens).logits) < TOLERANCE


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_gives_last_states(name: str, tmp_path: Path) -> None:
    """RoBERTa's files leave out the positions of padding, so that it is like BERT."""
    theirs = cases_encoders.hf_encoder(cases_encoders.CASES[name], head=False)
    write_kind(tmp_path / "model.gguf", "bert", theirs)
    ours = load_model(tmp_path / "model.gguf")
    tokens, mask = tokens_of(1) % 50 + 5, torch.ones(2, 24, dtype=torch.long)
    mask[0, 20:] = 0
    types = torch.arange(24).expand(2, 24) // 12
    got = ours(tokens, attention_mask=mask, token_types=types)
    wanted = cases_encoders.hf_output(theirs, tokens, mask, token_type_ids=types)
    assert ours.cfg.head == "none" and not ours.cfg.causal
    assert relative_error(got[mask.bool()], wanted[mask.bool()]) < TOLERANCE


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_encoder_decoder_logits(name: str, tmp_path: Path) -> None:
    """The file does not state the largest distance that buckets tell apart; all published models have 128.

    In float64, since these models, whose scores are not scaled, magnify rounding.
    """
    case = cases_seq2seq.SEQ2SEQ_CASES[name]
    theirs = cases_seq2seq.hf_seq2seq(Case(case.config_class, {**case.options, "relative_attention_max_distance": 128}))
    write_kind(tmp_path / "model.gguf", "t5", theirs)
    ours, theirs = load_model(tmp_path / "model.gguf", dtype=torch.float64), theirs.double()
    source, target = tokens_of(1), tokens_of(2, 15)
    with torch.no_grad():
        wanted = theirs(input_ids=source, decoder_input_ids=target).logits
    assert isinstance(ours, HookedEncoderDecoder)
    assert relative_error(ours(source, target), wanted) < TOLERANCE


@pytest.mark.parametrize("stack", ["", "decoder_"])
def test_absurd_layers_are_not_built(stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.loading import gguf_file

    def changed(path: Path, data: Any) -> Header:
        header = read_header(path, data)
        return Header({**header.metadata, f"t5.{stack}block_count": 1 << 40}, header.tensors, header.data_start)

    write_kind(tmp_path / "model.gguf", "t5", cases_seq2seq.hf_seq2seq(cases_seq2seq.SEQ2SEQ_CASES["t5"]))
    monkeypatch.setattr(gguf_file, "read_header", changed)
    with pytest.raises(ConfigError, match=f"states {1 << 40} layers"):
        load_model(tmp_path / "model.gguf")


def test_every_kind_has_a_case() -> None:
    covered = {architecture for architecture, _ in (*CASES.values(), *gguf_files.CASES.values())}
    assert covered | {"bert", "t5"} == set(KINDS)


def facts_of(name: str, path: Path, **changes: Any) -> Facts:
    """The header of a case's file, with changes to its metadata."""
    architecture, _ = CASES[name]
    written(name, path)
    header = read_header(path, open_gguf(path))
    changed = {f"{architecture}.{key}": value for key, value in changes.items()}
    return Facts(architecture, {**header.metadata, **changed}, header.tensors, "x.gguf")


@pytest.mark.parametrize(
    "experts, groups, method",
    [(160, (8, 3), "group_limited_greedy"), (256, (8, 4), "group_limited_greedy"), (64, (1, 1), "greedy")],
)
def test_groups_of_older_files(experts: int, groups: tuple[int, int], method: str, tmp_path: Path) -> None:
    """Files that do not state them mean those of the published models."""
    facts = facts_of("deepseek2", tmp_path / "model.gguf", expert_count=experts)
    hf = KINDS["deepseek2"].hf_config(facts)
    assert (hf["n_group"], hf["topk_group"]) == groups and hf["topk_method"] == method


@pytest.mark.parametrize("layers, scale", [(26, 8), (46, 4.0)])
def test_largest_gemma2_has_a_scale_of_its_own(layers: int, scale: float, tmp_path: Path) -> None:
    facts = facts_of("gemma2", tmp_path / "model.gguf", block_count=layers)
    assert KINDS["gemma2"].hf_config(facts)["query_pre_attn_scalar"] == scale


@pytest.mark.parametrize(
    "key, value, kind, said",
    [
        ("expert_count", None, CheckpointError, "x.gguf lacks 'qwen3moe.expert_count'"),
        ("expert_used_count", "2", CheckpointError, "'qwen3moe.expert_used_count' in x.gguf must be a positive whole number"),
        ("attention.clamp_kqv", 8.0, ConfigError, "'qwen3moe.attention.clamp_kqv' is 8.0, which is not supported"),
    ],
)
def test_metadata_is_named(key: str, value: Any, kind: type[Exception], said: str, tmp_path: Path) -> None:
    facts = facts_of("qwen3moe", tmp_path / "model.gguf", **{key: value})
    with pytest.raises(kind, match=said):
        KINDS["qwen3moe"].hf_config(facts)


def test_latents_of_unequal_rank_are_not_joined() -> None:
    parts = {"blk.0.attn_k_b.weight": torch.zeros(2, 5, 3), "blk.0.attn_v_b.weight": torch.zeros(2, 4, 6)}
    assert set(JoinedLatents(MappingSource(parts, "x.gguf")).names()) == set(parts)
    parts["blk.0.attn_v_b.weight"] = torch.zeros(2, 4, 5)
    joined = JoinedLatents(MappingSource(parts, "x.gguf"))
    assert joined.shape("blk.0.attn_kv_b.weight") == tuple(joined.read("blk.0.attn_kv_b.weight").shape) == (14, 5)
