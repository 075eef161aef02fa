"""Prompts: clean/corrupt pairs with checks, repeated random tokens, indirect-object identification."""

from __future__ import annotations

from .ioi import ioi_pairs as ioi_pairs
from .pairs import PromptPairs as PromptPairs
from .repeats import repeated_token_pairs as repeated_token_pairs
from .repeats import repeated_tokens as repeated_tokens

__all__ = ["PromptPairs", "ioi_pairs", "repeated_token_pairs", "repeated_tokens"]
