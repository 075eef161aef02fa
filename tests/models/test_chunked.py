"""Chunked attention: a query sees earlier keys of its own chunk, counted in tokens and not in padding."""

from __future__ import annotations

import pytest
import torch

from models.cache import KVCache
from tests.models.variants import tiny_model, tiny_tokens

CHUNK = 4


@pytest.mark.parametrize("padding", [0, 2, 3])
@pytest.mark.parametrize(("variant", "causal"), [("llama4", True), ("encoder_chunked", False)])
def test_who_sees_whom(variant: str, causal: bool, padding: int) -> None:
    model, tokens = tiny_model(variant), tiny_tokens(length=11)
    mask = torch.ones_like(tokens)
    mask[1, :padding] = 0
    _, cache = model.run_with_cache(tokens, names="blocks.0.attn.hook_pattern", attention_mask=mask)
    pattern = cache["pattern", 0]
    for row, skipped in enumerate((0, padding)):
        for query in range(11):
            for key in range(11):
                real = min(query, key) >= skipped
                same = (query - skipped) // CHUNK == (key - skipped) // CHUNK
                sees = real and same and (key <= query or not causal)
                assert ((pattern[row, :, query, key] > 0) == sees).all(), (row, query, key)


def test_decoding_across_a_boundary() -> None:
    """With a cache, token by token and in pieces that do not fit the chunks."""
    model, tokens = tiny_model("llama4", dtype=torch.float64), tiny_tokens(length=11)
    with torch.no_grad():
        whole = model(tokens)
        for piece in (1, 3):
            cache = KVCache(model.cfg)
            parts = [model(part, cache=cache) for part in tokens.split(piece, 1)]
            torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-10, atol=1e-12)
