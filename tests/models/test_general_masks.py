"""Masks that a call or a config sets: packed documents, prefixes, a user's own, windows with sinks."""

from __future__ import annotations

import pytest
import torch

from models import ConfigError, KVCache
from tests.models.variants import tiny_config, tiny_model, tiny_tokens

DOCUMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1], [5, 5, 7, 7, 7, 7, 7, 2, 2]])


def visible_keys(model, tokens: torch.Tensor, layer: int = 1, **given) -> torch.Tensor:
    """Which keys have weight, by batch, query and key."""
    return model.run_with_cache(tokens, names=f"blocks.{layer}.attn.hook_pattern", **given)[1]["pattern", layer][:, 0] > 0


@pytest.mark.parametrize("variant", ["gpt2", "llama", "mistral", "gemma2", "cohere2", "sink_window", "encoder_sliding"])
def test_packed_documents_are_as_if_alone(variant: str) -> None:
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens()
    packed = model(tokens, documents=DOCUMENTS)
    for row in range(2):
        for document in DOCUMENTS[row].unique():
            inside = DOCUMENTS[row] == document
            assert torch.allclose(packed[row, inside], model(tokens[row, inside][None])[0], atol=1e-10)
    assert (packed - model(tokens)).abs().max() > 1e-2


def test_packed_documents_with_padding() -> None:
    model, tokens = tiny_model("llama", dtype=torch.float64), tiny_tokens()
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :2], mask[1, 7:] = 0, 0
    packed = model(tokens, documents=DOCUMENTS, attention_mask=mask)
    for row in range(2):
        for document in DOCUMENTS[row].unique():
            inside = (DOCUMENTS[row] == document) & mask[row].bool()
            if inside.any():
                assert torch.allclose(packed[row, inside], model(tokens[row, inside][None])[0], atol=1e-10)


def test_a_packed_loss_leaves_out_pairs_of_two_documents() -> None:
    model, tokens = tiny_model("llama", dtype=torch.float64), tiny_tokens()
    losses, counts = [], []
    for row in range(2):
        for document in DOCUMENTS[row].unique():
            inside = DOCUMENTS[row] == document
            losses.append(model(tokens[row, inside][None], return_type="loss") * (inside.sum() - 1))
            counts.append(inside.sum() - 1)
    wanted = sum(losses) / sum(counts)
    assert torch.allclose(model(tokens, documents=DOCUMENTS, return_type="loss"), wanted, atol=1e-10)


def test_a_prefix_is_seen_from_both_sides() -> None:
    model, tokens = tiny_model("llama"), tiny_tokens()
    query, key = torch.arange(9)[:, None], torch.arange(9)[None]
    seen = visible_keys(model, tokens, prefix=torch.tensor([4, 0]))
    assert torch.equal(seen[0], (key <= query) | ((key < 4) & (query < 4)))
    assert torch.equal(seen[1], key <= query)
    assert torch.equal(visible_keys(model, tokens, prefix=4)[1], seen[0])


@pytest.mark.parametrize("variant", ["llama", "mistral", "gpt2"])
def test_a_prefix_counts_real_tokens_and_decodes(variant: str) -> None:
    model, tokens = tiny_model(variant, dtype=torch.float64), tiny_tokens()
    whole = model(tokens, prefix=4)
    padded = torch.cat((torch.zeros(2, 3, dtype=torch.long), tokens), 1)
    mask = (torch.arange(12) >= 3).long().expand(2, -1)
    assert torch.allclose(model(padded, prefix=4, attention_mask=mask)[:, 3:], whole, atol=1e-10)
    cache = KVCache(model.cfg)
    pieces = [model(tokens[:, :6], prefix=4, cache=cache), model(tokens[:, 6:], cache=cache)]
    assert torch.allclose(torch.cat(pieces, 1), whole, atol=1e-10)
    # Nothing before the prefix's end depends on what comes after it.
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 50
    assert torch.equal(model(changed, prefix=4)[:, :4], whole[:, :4])


def test_a_users_mask_takes_the_place_of_every_layers_own() -> None:
    model, tokens = tiny_model("gemma2"), tiny_tokens()
    own = (torch.rand(2, 4, 9, 9, generator=torch.Generator().manual_seed(2)) > 0.5) | torch.eye(9).bool()
    for visible in (own[0, 0], own[:, 0], own):
        _, cache = model.run_with_cache(tokens, visible=visible)
        wanted = visible if visible.dim() == 4 else visible[:, None] if visible.dim() == 3 else visible[None, None]
        for layer in range(3):
            assert torch.equal(cache["pattern", layer] > 0, wanted.expand(2, 4, 9, 9))
        fused = model(tokens, visible=visible)
        assert torch.allclose(fused, model.run_with_cache(tokens, visible=visible, names="*pattern")[0], atol=1e-5)


def test_a_query_that_a_users_mask_leaves_without_keys_gets_nothing() -> None:
    model, tokens = tiny_model("llama"), tiny_tokens()
    visible = torch.ones(9, 9).tril().bool()
    visible[4] = False
    for names in ("*.hook_z", "*"):
        _, cache = model.run_with_cache(tokens, visible=visible, names=names)
        assert cache["z", 1][:, 4].abs().max() == 0 and cache["z", 1].isfinite().all()


def test_a_window_with_sinks() -> None:
    model, tokens = tiny_model("sink_window"), tiny_tokens()
    query, key = torch.arange(9)[:, None], torch.arange(9)[None]
    wanted = (key <= query) & ((query - key < 3) | (key < 2))
    assert torch.equal(visible_keys(model, tokens), wanted.expand(2, 9, 9))
    padded = torch.cat((torch.zeros(2, 3, dtype=torch.long), tokens), 1)
    mask = (torch.arange(12) >= 3).long().expand(2, -1)
    assert torch.equal(visible_keys(model, padded, attention_mask=mask)[:, 3:, 3:], wanted.expand(2, 9, 9))
    cache = KVCache(model.cfg)
    pieces = [model(tokens[:, :5], cache=cache)] + [model(tokens[:, place, None], cache=cache) for place in range(5, 9)]
    assert torch.allclose(torch.cat(pieces, 1), model(tokens), atol=1e-5)
    with pytest.raises(ConfigError, match="window must say how many keys"):
        tiny_config("sink_window", window=None)


def test_sinks_and_window_alone_decide_what_one_layer_says() -> None:
    """In one layer, the last token's logits are those of a text of sinks and window only, at their own positions."""
    changes = {"n_layers": 1, "positions": "learned", "rotary": None, "dtype": torch.float64}
    model = tiny_model("sink_window", **changes)
    tokens = tiny_tokens()
    kept = [0, 1, 6, 7, 8]
    with torch.no_grad():
        moved = tiny_model("sink_window", **changes, mask="full", window=None)
        moved.load_state_dict(model.state_dict())
        moved.pos_embed.weight[:5] = model.pos_embed.weight[kept]
    assert torch.allclose(moved(tokens[:, kept])[:, -1], model(tokens)[:, -1], atol=1e-10)
