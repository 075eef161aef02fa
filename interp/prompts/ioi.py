"""Indirect-object identification: which of two people receives something (Wang et al. 2022, arXiv 2211.00593).

    clean    When Mary and John went to the shop, John gave a drink to      -> " Mary" (IO), not " John" (S)
    corrupt  When Anna and Luke went to the shop, Mark gave a drink to      (three other names: nothing to identify)

The words are our own. They are filtered by the model's tokenizer at run time, so that each is one token and every prompt of a
batch has one length.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..errors import PromptError
from ..run import checked_seed
from .pairs import PromptPairs
from .tokens import encode

NAMES = tuple(
    """Mary John Anna Paul Emma James Alice Robert Sarah Michael Laura David Julia Thomas Kate Peter Helen George Lucy Mark Jane
    Daniel Rachel Simon Claire Adam Rose Henry Grace Jack Sophie Martin Victoria Andrew Maria Charles Lisa Kevin Amy Brian Linda
    Steven Karen Eric Susan Frank Nancy Scott Diana Alex""".split()
)
PLACES = tuple("shop park school garden station market library office beach museum river hotel house store".split())
OBJECTS = tuple("book drink letter ring key ticket phone watch gift map coat ball pen photo".split())
TEMPLATES = (
    "When{A} and{B} went to the{place},{S} gave a{object} to",
    "While{A} and{B} stood near the{place},{S} gave the{object} to",
    "After{A} and{B} came to the{place},{S} handed a{object} to",
    "Once{A} and{B} reached the old{place},{S} gave a{object} to",
    "Then{A} and{B} left the{place}, and{S} gave a{object} to",
    "Because{A} and{B} met near the{place},{S} brought a{object} to",
    "Before{A} and{B} ran to the{place},{S} sent a{object} to",
)


def ioi_pairs(model: Any, n: int = 10, seed: int = 0, prepend_bos: bool | None = None) -> PromptPairs:
    """`n` pairs of equal token length, half of them ABBA (S is the second name), half BABA (S is the first).

    The answer is the indirect object, the wrong answer the subject. The corrupt prompt puts three other names at the same
    places. `prepend_bos=None` takes the model's default. Raises PromptError where the model has no tokenizer, or its tokenizer
    splits too many of the words.
    """
    if n < 1:
        raise PromptError(f"n must be at least 1 pair, got {n}.")
    rng = random.Random(checked_seed(seed))
    names = _single_tokens("names", NAMES, model, at_least=5)
    places = _single_tokens("places", PLACES, model, at_least=1)
    objects = _single_tokens("objects", OBJECTS, model, at_least=1)
    templates = _equal_length(TEMPLATES, {"place": places[0], "object": objects[0]}, names, model)
    prompts = []
    for i in range(n):
        words = {"place": rng.choice(places), "object": rng.choice(objects)}
        prompts.append(_pair(templates[i // 2 % len(templates)], words, rng.sample(names, 5), abba=i % 2 == 0))
    return PromptPairs.from_prompts(prompts, model, prepend_bos, source=f"indirect-object identification, seed {seed}")


def _pair(template: str, words: dict[str, str], names: Sequence[str], abba: bool) -> dict[str, Any]:
    io, subject, *others = names
    first, second = (io, subject) if abba else (subject, io)
    return {
        "clean": template.format(A=first, B=second, S=subject, **words),
        "corrupt": template.format(A=others[0], B=others[1], S=others[2], **words),
        "answers": [io],
        "wrong_answers": [subject],
    }


def _single_tokens(kind: str, words: Sequence[str], model: Any, at_least: int) -> list[str]:
    """The words, each with its leading space, that the tokenizer keeps whole."""
    kept = [f" {word}" for word in words if len(encode(f" {word}", model)) == 1]
    if len(kept) < at_least:
        raise PromptError(
            f"the model's tokenizer keeps only {len(kept)} of {len(words)} {kind} whole; at least {at_least} are needed."
        )
    return kept


def _equal_length(templates: Sequence[str], words: dict[str, str], names: Sequence[str], model: Any) -> list[str]:
    """The templates that share the most common token length; ties go to the shorter."""
    lengths = [len(encode(template.format(A=names[0], B=names[1], S=names[1], **words), model)) for template in templates]
    counts = Counter(lengths)
    best = min(counts, key=lambda length: (-counts[length], length))
    return [template for template, length in zip(templates, lengths, strict=True) if length == best]
