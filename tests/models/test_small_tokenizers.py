"""The built-in tokenisers: pieces of characters and words, what they refuse, and text through a model."""

from __future__ import annotations

import json

import pytest
import torch

from models import ConfigError, HookedTransformer, InputError, TransformerConfig, load_model
from models.small_tokenizers import CharacterTokenizer, SmallTokenizer, WordTokenizer, small_tokenizer
from tests.models.variants import tiny_model

TEXT = "the cat's toy, the well-worn toy: gone!"


def test_the_longest_piece_is_taken_from_left_to_right() -> None:
    tokenizer = CharacterTokenizer(["a", "b", "ab", "ba"])
    assert tokenizer.encode("abab") == [2, 2]
    assert tokenizer.encode("baab") == [3, 2]
    assert tokenizer.encode("aab") == [0, 2]
    assert [tokenizer.token_string(index) for index in tokenizer.encode("bab")] == ["ba", "b"]
    assert CharacterTokenizer(["a", "b", "ab"], greedy=False).encode("abab") == [0, 1, 0, 1]


def test_characters_and_the_most_frequent_pairs_of_a_text() -> None:
    tokenizer = CharacterTokenizer.from_text("abracadabra", n_pairs=2, unknown=True, special=True)
    assert tokenizer.vocabulary == ("<unk>", "<bos>", "<eos>", "a", "b", "c", "d", "r", "ab", "br")
    assert tokenizer.encode("abracadabra", prepend_bos=True) == [1, 8, 7, 3, 5, 3, 6, 8, 7, 3]
    assert tokenizer.decode(tokenizer.encode("cadabra")) == "cadabra"
    assert tokenizer.decode(tokenizer.encode("xa")) == "<unk>a"
    # A special token cannot be spelled: its characters are text like any other.
    assert tokenizer.encode("<bos>")[1] == tokenizer.encode("b")[0]


def test_words_and_punctuation() -> None:
    tokenizer = WordTokenizer.from_text(TEXT)
    assert tokenizer.vocabulary == ("the", "toy", "!", ",", ":", "cat's", "gone", "well-worn")
    assert tokenizer.encode(TEXT) == [0, 5, 1, 3, 0, 7, 1, 4, 6, 2]
    assert tokenizer.decode(tokenizer.encode(f"  {TEXT} \n")) == TEXT
    assert tokenizer.encode("") == []


def test_rare_and_unknown_words_share_one_token() -> None:
    tokenizer = WordTokenizer.from_text(TEXT, n_words=2, unknown=True)
    assert tokenizer.vocabulary == ("<unk>", "the", "toy")
    assert tokenizer.decode(tokenizer.encode("the cat's toy, dog")) == "the <unk> toy <unk> <unk>"


@pytest.mark.parametrize(
    "tokenizer",
    [CharacterTokenizer.from_text(TEXT, n_pairs=3, special=True), WordTokenizer.from_text(TEXT, unknown=True, special=True)],
)
def test_round_trip_as_plain_data(tokenizer: SmallTokenizer) -> None:
    again = small_tokenizer(json.loads(json.dumps(tokenizer.to_dict())))
    assert type(again) is type(tokenizer) and again.to_dict() == tokenizer.to_dict()
    assert again.encode(TEXT) == tokenizer.encode(TEXT)
    with pytest.raises(ConfigError, match=r"kind 'character'.*'characters'"):
        small_tokenizer({**tokenizer.to_dict(), "kind": "character"})
    with pytest.raises(ConfigError, match="options are wrong.*speed"):
        small_tokenizer({**tokenizer.to_dict(), "speed": 3})


def test_a_model_reads_and_writes_text() -> None:
    tokenizer = CharacterTokenizer.from_text("abracadabra", special=True, adds_bos=True)
    cfg = TransformerConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=tokenizer.vocab_size, n_ctx=16, d_mlp=8)
    model = HookedTransformer(cfg.replace(bos_token_id=tokenizer.bos_token_id, default_prepend_bos=tokenizer.adds_bos))
    model.tokenizer = tokenizer
    assert model.to_str_tokens("abra") == ["<bos>", "a", "b", "r", "a"]
    assert model.to_string(model.to_tokens("cab", prepend_bos=False)) == "cab"
    assert model.to_single_token("c") == tokenizer.encode("c")[0]
    assert model("abra").shape == (1, 5, tokenizer.vocab_size)
    with pytest.raises(InputError, match="'x' in 'axa' is not in the vocabulary"):
        model("axa")
    with pytest.raises(InputError, match=r"'ab' is 2 tokens, \['a', 'b'\]"):
        model.to_single_token("ab")


def test_a_saved_model_keeps_its_small_tokenizer(tmp_path) -> None:
    tokenizer = WordTokenizer.from_text(TEXT, unknown=True)
    cfg = TransformerConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_vocab=tokenizer.vocab_size, n_ctx=16, d_mlp=8)
    model = HookedTransformer(cfg)
    model.tokenizer = tokenizer
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.tokenizer.to_dict() == tokenizer.to_dict()
    assert torch.equal(loaded("the toy"), model("the toy"))
    config = json.loads((tmp_path / "config.json").read_text())
    config["tokenizer"]["vocabulary"][1] = "<unk>"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"config.json: the words tokeniser's options are wrong: token '<unk>' is twice"):
        load_model(tmp_path)


def test_what_is_refused() -> None:
    tokenizer = WordTokenizer(["a", "b"])
    for call, message in (
        (lambda: tokenizer.encode("a", prepend_bos=True), "no BOS token"),
        (lambda: tokenizer.encode("a c"), "'c' in 'a c' is not in the vocabulary"),
        (lambda: tokenizer.decode([2]), "token id 2 is outside the tokeniser's vocabulary, 0 to 1"),
        (lambda: tokenizer.token_string(-1), "token id -1 is outside"),
        (lambda: WordTokenizer("abc"), "vocabulary must be a list"),
        (lambda: WordTokenizer(["a", ""]), "not empty"),
        (lambda: WordTokenizer([]), "vocabulary is empty"),
        (lambda: WordTokenizer(["a", "a"]), "'a' is twice"),
        (lambda: WordTokenizer(["a"], bos="<bos>"), "bos='<bos>' is not in the vocabulary of 1 tokens"),
        (lambda: WordTokenizer(["a"], adds_bos=True), "adds_bos=True needs a bos token"),
        (lambda: WordTokenizer.from_text(" "), "at least one word"),
        (lambda: WordTokenizer.from_text("a", n_words=0), "n_words must be a whole number of 1 or more"),
        (lambda: CharacterTokenizer.from_text(""), "not empty"),
        (lambda: CharacterTokenizer.from_text("ab", n_pairs=-1), "n_pairs must be a whole number of 0 or more"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_a_model_begins_texts_with_bos_where_its_small_tokeniser_does() -> None:
    tokenizer = CharacterTokenizer.from_text("abc", special=True, adds_bos=True)
    model = tiny_model("gpt2", d_vocab=tokenizer.vocab_size)
    model.tokenizer = tokenizer
    assert model.to_tokens("abc").tolist() == [[0, 2, 3, 4]]
    assert model.to_tokens("abc", prepend_bos=False).tolist() == [[2, 3, 4]]


def test_marks_belong_to_the_letter_before_them() -> None:
    text = "हिन्दी भाषा"
    tokenizer = WordTokenizer.from_text(text)
    assert tokenizer.vocab_size == 2 and tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: CharacterTokenizer(c for c in "abc"), InputError, "vocabulary must be a list"),
        (lambda: CharacterTokenizer({"a", "b"}), InputError, "in the order of their ids"),
        (lambda: CharacterTokenizer(None), InputError, "vocabulary must be a list"),
        (lambda: CharacterTokenizer.from_text("ab", n_pairs=1.5), InputError, "n_pairs must be a whole number"),
        (lambda: WordTokenizer.from_text("a b", n_words="3"), InputError, "n_words must be a whole number"),
        (lambda: CharacterTokenizer(["a"]).decode("ab"), InputError, "a token id must be a whole number, got 'a'"),
        (lambda: CharacterTokenizer(["a"]).decode([0.5]), InputError, "a token id must be a whole number, got 0.5"),
        (lambda: small_tokenizer([1]), ConfigError, "must be an object"),
        (lambda: small_tokenizer({"kind": ["a"]}), ConfigError, "is not known"),
    ],
)
def test_mistakes_get_one_sentence(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
