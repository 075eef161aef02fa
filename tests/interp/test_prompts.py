"""Prompt pairs: alignment, padding, errors that name the pair, and generators whose answer is known by construction."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from interp.errors import InterpError, PromptError
from interp.heads.composition import random_composition
from interp.prompts import PromptPairs, ioi_pairs, repeated_token_pairs, repeated_tokens
from interp.prompts.ioi import NAMES, OBJECTS, PLACES


class WordTokenizer:
    """One token per known word with its leading space; other words fall apart into characters."""

    def __init__(self, words: list[str]) -> None:
        self.vocab = ["<bos>", "<eos>", *words, *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ,.\n"]
        self.ids = {word: i for i, word in enumerate(self.vocab)}

    def encode(self, text: str) -> list[int]:
        import re

        ids: list[int] = []
        for piece in re.findall(r" ?[A-Za-z]+|[^A-Za-z]", text):
            ids += [self.ids[piece]] if piece in self.ids else [self.ids[letter] for letter in piece]
        return ids


class WordModel:
    """What `PromptPairs` asks of a model: cfg, tokenizer, to_tokens, to_str_tokens."""

    def __init__(self, words: list[str] | None = None, *, default_prepend_bos: bool = False, n_ctx: int = 64) -> None:
        self.tokenizer = None if words is None else WordTokenizer(words)
        d_vocab = 50 if words is None else len(self.tokenizer.vocab)
        self.cfg = SimpleNamespace(
            d_vocab=d_vocab, n_ctx=n_ctx, bos_token_id=0, eos_token_ids=(1,), default_prepend_bos=default_prepend_bos
        )

    def to_tokens(self, text: str, prepend_bos: bool | None = None) -> torch.Tensor:
        assert prepend_bos is False
        return torch.tensor([self.tokenizer.encode(text)])

    def to_str_tokens(self, tokens: torch.Tensor) -> list[str]:
        return [self.tokenizer.vocab[i] for i in tokens.tolist()]


WORDS = [" red", " blue", " cat", " dog", "The", " is", " sees", " big"]


@pytest.fixture
def model() -> WordModel:
    return WordModel(WORDS)


def pair(
    clean: object = "The cat is", corrupt: object = "The dog is", answers: object = (" red",), wrong: object = (" blue",)
) -> dict:
    return {"clean": clean, "corrupt": corrupt, "answers": list(answers), "wrong_answers": list(wrong)}


def test_text_becomes_aligned_ids(model: WordModel) -> None:
    pairs = PromptPairs.from_prompts([pair()], model)
    ids = model.tokenizer.ids
    assert pairs.clean.tolist() == [[ids["The"], ids[" cat"], ids[" is"]]]
    assert pairs.corrupt.tolist() == [[ids["The"], ids[" dog"], ids[" is"]]]
    assert pairs.answers.tolist() == [[ids[" red"]]] and pairs.wrong_answers.tolist() == [[ids[" blue"]]]
    assert pairs.last.tolist() == [2] and not pairs.padded and not pairs.prepend_bos


@pytest.mark.parametrize(
    "default, asked, expected", [(False, None, False), (True, None, True), (True, False, False), (False, True, True)]
)
def test_bos_follows_the_model_unless_told(default: bool, asked: bool | None, expected: bool) -> None:
    pairs = PromptPairs.from_prompts([pair()], WordModel(WORDS, default_prepend_bos=default), asked)
    assert (pairs.clean[0, 0].item() == 0) is expected
    assert pairs.prepend_bos is expected and pairs.record()["prepend_bos"] is expected


def test_token_ids_get_no_bos_unless_asked() -> None:
    model = WordModel(default_prepend_bos=True)
    prompts = [pair([3, 4], [5, 4], [6], [7])]
    assert PromptPairs.from_prompts(prompts, model).clean.tolist() == [[3, 4]]
    assert PromptPairs.from_prompts(prompts, model, True).clean.tolist() == [[0, 3, 4]]


@pytest.mark.parametrize(
    "side, clean, last", [("right", [[3, 4, 0], [5, 6, 7]], [1, 2]), ("left", [[0, 3, 4], [5, 6, 7]], [2, 2])]
)
def test_padding(side: str, clean: list[list[int]], last: list[int]) -> None:
    prompts = [pair([3, 4], [5, 4], [6, 8], []), pair([5, 6, 7], [5, 6, 8], [9], [10, 11])]
    pairs = PromptPairs.from_prompts(prompts, WordModel(), padding_side=side)
    assert pairs.clean.tolist() == clean and pairs.last.tolist() == last and pairs.padded
    assert pairs.attention_mask.sum(1).tolist() == [2, 3]
    assert pairs.answers.tolist() == [[6, 8], [9, -1]] and pairs.wrong_answers.tolist() == [[-1, -1], [10, 11]]
    assert [row["clean"] for row in pairs.to_lists()] == [[3, 4], [5, 6, 7]]


def test_hash_ignores_padding_and_sees_each_part() -> None:
    prompts = [pair([3, 4], [5, 4], [6], []), pair([5, 6, 7], [5, 6, 8], [9], [10])]
    right = PromptPairs.from_prompts(prompts, WordModel()).record()["sha256"]
    assert PromptPairs.from_prompts(prompts, WordModel(), padding_side="left").record()["sha256"] == right
    for key, value in (("clean", [3, 9]), ("corrupt", [5, 9]), ("answers", [7]), ("wrong_answers", [11])):
        changed = [{**prompts[0], key: value}, prompts[1]]
        assert PromptPairs.from_prompts(changed, WordModel()).record()["sha256"] != right


def test_batches_keep_order_and_lengths() -> None:
    pairs = repeated_token_pairs(WordModel().cfg, n=7, distance=8)
    parts = list(pairs.batches(3))
    assert [len(part) for part in parts] == [3, 3, 1]
    assert torch.equal(torch.cat([part.clean for part in parts]), pairs.clean)
    with pytest.raises(PromptError, match="size must be at least 1"):
        next(pairs.batches(0))


BAD = [
    (pair(corrupt="The big dog is"), r"pair 1: clean and corrupt .* 3 and 4.*' big'"),
    (pair(clean="", corrupt=""), "pair 1, clean is an empty prompt"),
    (pair(answers=()), "pair 1 must have at least one answer"),
    (pair(answers=(" red cat",)), r"pair 1, answers must each be one token, got ' red cat', which is 2: \[' red', ' cat'\]"),
    (pair(wrong=(" red",)), r"pair 1: \[' red'\] is among both"),
    (pair(clean=[2, 999], corrupt=[2, 3]), "pair 1, clean has token id 999, outside the vocabulary 0"),
    (pair(clean=[2, -1], corrupt=[2, 3]), "pair 1, clean has token id -1"),
    (pair(clean=[2, 1.5], corrupt=[2, 3]), "pair 1, clean must hold whole numbers"),
    (
        pair(clean="The" + " cat" * 70, corrupt="The" + " dog" * 70),
        "pair 1, clean has 71 tokens, more than the model's context of 64",
    ),
    (pair(clean="The", corrupt=[5]), "pair 1 must give clean and corrupt both as text or both as token ids"),
    (pair(clean=7, corrupt=7), "pair 1, clean must be text or a list of token ids, got int"),
    ({"clean": "The", "corrupt": "The"}, "pair 1 lacks 'answers'"),
    ({**pair(), "answers": " red"}, "pair 1, answers must be a list"),
    ("The cat", "pair 1 must be a dict"),
]


@pytest.mark.parametrize("bad, message", BAD, ids=[message[:40] for _, message in BAD])
def test_errors_name_the_pair(bad: dict, message: str, model: WordModel) -> None:
    with pytest.raises(PromptError, match=message) as error:
        PromptPairs.from_prompts([pair(), bad], model)
    assert "\n" not in str(error.value)


def test_errors_about_the_whole_set(model: WordModel) -> None:
    with pytest.raises(PromptError, match="at least one clean/corrupt pair"):
        PromptPairs.from_prompts([], model)
    with pytest.raises(PromptError, match="no tokenizer, so prompts must be lists of token ids"):
        PromptPairs.from_prompts([pair()], WordModel())
    with pytest.raises(PromptError, match="mix text and token ids"):
        PromptPairs.from_prompts([pair(), pair([3], [4], [5], [6])], WordModel(WORDS, default_prepend_bos=True))


def test_answer_may_be_what_it_adds_to_the_prompt() -> None:
    """A tokenizer that writes a lone answer in two pieces, but one after the prompt, still has a single-token answer."""
    model = WordModel(WORDS)
    plain_encode = model.tokenizer.encode
    model.tokenizer.encode = lambda text: ([model.tokenizer.ids[" "]] if text == " red" else []) + plain_encode(text)
    pairs = PromptPairs.from_prompts([pair()], model)
    assert pairs.answers.tolist() == [[model.tokenizer.ids[" red"]]]


def test_from_json(tmp_path, model: WordModel) -> None:
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps({"word_idxs": None, "prompts": [pair()]}))
    pairs = PromptPairs.from_json(file, model)
    assert len(pairs) == 1 and pairs.source == "pairs.json"
    file.write_text("{not json")
    with pytest.raises(PromptError, match="cannot be read as JSON"):
        PromptPairs.from_json(file, model)
    file.write_text('{"pairs": []}')
    with pytest.raises(PromptError, match="must hold"):
        PromptPairs.from_json(file, model)
    for bad in ("[" * 100_000, '{"prompts": [' + "9" * 5000 + "]}"):
        file.write_text(bad)
        with pytest.raises(PromptError, match="cannot be read as JSON"):
            PromptPairs.from_json(file, model)
    with pytest.raises(PromptError, match="cannot be read as JSON"):
        PromptPairs.from_json(tmp_path, model)
    with pytest.raises(PromptError, match="does not exist"):
        PromptPairs.from_json(tmp_path / "none.json", model)


def test_pairs_are_a_sequence_of_single_pairs() -> None:
    pairs = repeated_token_pairs(WordModel().cfg, n=3, distance=8)
    singles = list(pairs)
    assert [len(single) for single in singles] == [1, 1, 1]
    for i, single in enumerate(singles):
        for one in (single, pairs[i], pairs[i - 3], pairs[torch.tensor(i)]):
            assert one.to_lists() == [pairs.to_lists()[i]] and one.last.shape == (1,)
    assert pairs[1:].to_lists() == pairs.to_lists()[1:] == pairs[[1, 2]].to_lists()
    with pytest.raises(IndexError, match="no pair 3; there are 3 pairs"):
        pairs[3]
    assert repr(pairs[:1]) == f"PromptPairs(1 pair of up to 12 tokens, {pairs.source})"


@pytest.mark.parametrize("answers, answer", [("answers", 9), ("wrong_answers", " red"), ("answers", " red")])
def test_answers_lie_among_the_logits(answers: str, answer: object) -> None:
    """Ids and text alike: a model may read more tokens than its logits are over."""
    model = WordModel(["x"] * 10 + WORDS)
    model.cfg.d_vocab_out = 8
    good = {"clean": "The cat", "corrupt": "The dog", "answers": [3], "wrong_answers": [4]}
    with pytest.raises(PromptError, match=rf"pair 1, {answers} has token id \d+, outside the model's logits 0..7"):
        PromptPairs.from_prompts([good, {**good, answers: [answer]}], model)


def test_repeated_pairs_need_logits_over_all_tokens() -> None:
    model = WordModel()
    model.cfg.d_vocab_out = 20
    with pytest.raises(PromptError, match="reads 50 tokens, but its logits cover only the first 20"):
        repeated_token_pairs(model, distance=8)


@pytest.mark.parametrize("seed", [99999999999999999999, -(2**63) - 1, 1.5, "a", True])
def test_a_seed_is_a_number_of_64_bits(seed: object, unchecked: None) -> None:
    cfg = WordModel().cfg
    for draw in (
        lambda: repeated_token_pairs(cfg, 2, 8, seed),
        lambda: repeated_tokens(20, 5, 1, seed=seed),
        lambda: ioi_pairs(WordModel(ioi_words(len(NAMES))), 2, seed),
        lambda: random_composition(8, 2, seed=seed),
    ):
        with pytest.raises(InterpError, match="seed must be a whole number of at most 64 bits"):
            draw()


def test_repeated_tokens_are_unique_inside_a_repeat_and_repeat() -> None:
    state = torch.get_rng_state()
    tokens = repeated_tokens(20, 12, 5, repeats=3, bos_token_id=0, exclude=(3, 4), seed=1)
    assert torch.equal(state, torch.get_rng_state())
    assert tokens.shape == (5, 37) and (tokens[:, 0] == 0).all()
    first, second, third = tokens[:, 1:].split(12, dim=1)
    assert torch.equal(first, second) and torch.equal(first, third)
    assert all(len(set(row)) == 12 and not {0, 3, 4} & set(row) for row in first.tolist())
    assert torch.equal(tokens, repeated_tokens(20, 12, 5, repeats=3, bos_token_id=0, exclude=(3, 4), seed=1))
    assert not torch.equal(tokens, repeated_tokens(20, 12, 5, repeats=3, bos_token_id=0, exclude=(3, 4), seed=2))


def test_repeated_tokens_need_a_large_enough_vocabulary() -> None:
    with pytest.raises(PromptError, match="vocabulary of 10 leaves 8"):
        repeated_tokens(10, 9, 1, bos_token_id=0, exclude=(1,))
    with pytest.raises(PromptError, match="distance must be at least 1"):
        repeated_tokens(10, 0, 1)


def induction_answer(tokens: list[int]) -> int:
    """What an ideal induction head predicts: the successor of the last token's only earlier occurrence."""
    earlier = [i for i, token in enumerate(tokens[:-1]) if token == tokens[-1]]
    assert len(earlier) == 1
    return tokens[earlier[0] + 1]


@pytest.mark.parametrize("corruption", ["match", "successor"])
def test_repeated_pairs_flip_the_induction_answer(corruption: str) -> None:
    pairs = repeated_token_pairs(WordModel().cfg, n=50, distance=11, seed=3, corruption=corruption)
    assert pairs.clean.shape == (50, 11 + 6)
    for row in pairs.to_lists():
        assert induction_answer(row["clean"]) == row["answers"][0]
        assert induction_answer(row["corrupt"]) == row["wrong_answers"][0]
        assert sorted(row["clean"]) == sorted(row["corrupt"]), "both hold the same bag of tokens"
        changed = [i for i, (a, b) in enumerate(zip(row["clean"], row["corrupt"], strict=True)) if a != b]
        assert len(changed) == 2 and max(changed) < 11
        candidates = {row["clean"].index(row["answers"][0]), row["clean"].index(row["wrong_answers"][0])}
        assert bool(candidates & set(changed)) is (corruption == "successor")
        assert not {row["answers"][0], row["wrong_answers"][0]} & set(row["clean"][11:])


def test_repeated_pairs_follow_bos_and_reject_bad_arguments() -> None:
    assert repeated_token_pairs(WordModel(default_prepend_bos=True), n=2, distance=8).clean[:, 0].tolist() == [0, 0]
    cfg = WordModel().cfg
    with pytest.raises(PromptError, match="n must be at least 1 pair, got 0"):
        repeated_token_pairs(cfg, 0, 16, 0)
    with pytest.raises(PromptError, match="distance must be at least 6"):
        repeated_token_pairs(cfg, distance=5)
    with pytest.raises(PromptError, match="more than the model's context of 64"):
        repeated_token_pairs(cfg, distance=47)
    with pytest.raises(PromptError, match='corruption must be "match" or "successor"'):
        repeated_token_pairs(cfg, corruption="other")


def ioi_words(n_names: int) -> list[str]:
    templates = "When While After Once Then Because Before".split()
    common = " and, went to the came reached old left stood met near ran gave a handed brought sent".replace(",", "").split()
    return templates + [f" {word}" for word in (*common, *NAMES[:n_names], *PLACES, *OBJECTS)]


def test_ioi_pairs_are_abc_in_both_orders_and_of_one_length() -> None:
    model = WordModel(ioi_words(len(NAMES)))
    pairs = ioi_pairs(model, n=24, seed=5)
    assert not pairs.padded and len(pairs) == 24
    names = {model.tokenizer.ids[f" {name}"] for name in NAMES}
    orders = []
    for row in pairs.to_lists():
        places = [i for i, token in enumerate(row["clean"]) if token in names]
        a, b, s = (row["clean"][i] for i in places)
        assert s == row["wrong_answers"][0] and row["answers"][0] in (a, b) and {a, b} == {row["answers"][0], s}
        other = [row["corrupt"][i] for i in places]
        assert len({*other, a, b}) == 5, "three other names, all different"
        assert [t for i, t in enumerate(row["clean"]) if i not in places] == [
            t for i, t in enumerate(row["corrupt"]) if i not in places
        ]
        orders.append(s == b)
    assert sum(orders) == 12, "half ABBA, half BABA"
    assert pairs.record() == ioi_pairs(model, n=24, seed=5).record()
    assert pairs.record()["sha256"] != ioi_pairs(model, n=24, seed=6).record()["sha256"]


def test_ioi_uses_only_whole_words() -> None:
    model = WordModel(ioi_words(6))
    used = {token for row in ioi_pairs(model, n=20).to_lists() for token in row["answers"] + row["wrong_answers"]}
    assert used <= {model.tokenizer.ids[f" {name}"] for name in NAMES[:6]}
    with pytest.raises(PromptError, match="keeps only 4 of"):
        ioi_pairs(WordModel(ioi_words(4)))
    with pytest.raises(PromptError, match="no tokenizer"):
        ioi_pairs(WordModel())


def test_ioi_on_a_real_model(smollm2) -> None:
    """Fourteen tokens each; the model names the indirect object on clean prompts and has no preference on corrupt ones."""
    pairs = ioi_pairs(smollm2, n=20)
    assert pairs.clean.shape == (20, 14) and not pairs.padded and not pairs.prepend_bos
    with torch.no_grad():
        clean, corrupt = (smollm2(tokens)[:, -1] for tokens in (pairs.clean, pairs.corrupt))
    gaps = [(logits.gather(1, pairs.answers) - logits.gather(1, pairs.wrong_answers)).flatten() for logits in (clean, corrupt)]
    assert gaps[0].mean() > 3 and (gaps[0] > 0).float().mean() >= 0.9
    assert abs(gaps[1].mean()) < 1.5


def test_prompt_files_of_known_tasks(smollm2, shared_data) -> None:
    """Pairs made for another tokenizer: those that fit load, the first that does not is named with its tokens."""
    file = shared_data / "prompts" / "ioi.json"
    pairs = PromptPairs.from_prompts(json.loads(file.read_text())["prompts"][:4], smollm2)
    assert len(pairs) == 4 and pairs.answers.shape == (4, 1) and pairs.last.tolist() == [13] * 4
    with pytest.raises(PromptError, match=r"pair 4: .* 14 and 15: clean .*' Louis'.*corrupt .*' Conn', 'or'"):
        PromptPairs.from_json(file, smollm2)
    with pytest.raises(PromptError, match=r"pair 0, answers must each be one token, got '64', which is 2: \['6', '4'\]"):
        PromptPairs.from_json(shared_data / "prompts" / "greater_than.json", smollm2)
