"""A user's own variants: what `register` takes, and what is said about entries that cannot work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from models import ConfigError, HookError, HookPoint, register
from models.block import ORDERS
from models.config import NAMES
from models.register import REGISTRIES
from tests.models.variants import tiny_model, tiny_tokens


@pytest.fixture
def own() -> Iterator[Any]:
    """`register`, undone after the test."""
    added = []

    def add(field: str, name: str, entry: Any) -> None:
        register(field, name, entry)
        added.append((field, name))

    yield add
    for field, name in added:
        del REGISTRIES[field][name]
        NAMES[field].remove(name)


def test_layers_that_differ_in_a_field_their_mask_reads_have_their_own_masks(own) -> None:
    own("mask", "by_heads", lambda view: (view.in_order & (view.distance < view.cfg.n_heads))[None, None])
    two_heads = {"b": {"n_heads": 2, "d_head": 16}}
    model = tiny_model("gpt2", mask="by_heads", layer_types=("a", "b", "a"), by_type=two_heads)
    cache = model.run_with_cache(tiny_tokens())[1]
    assert [int((cache["pattern", layer][0, 0, 8] > 0).sum()) for layer in range(3)] == [4, 2, 4]


@pytest.mark.parametrize("returned", [None, torch.ones(9, 9, dtype=torch.bool), torch.ones(1, 1, 9, 9)])
def test_a_mask_that_returns_something_else_is_named(own, returned) -> None:
    own("mask", "odd", lambda view: returned)
    with pytest.raises(ConfigError, match="mask 'odd' must return a bool tensor"):
        tiny_model("gpt2", mask="odd")(tiny_tokens())


@pytest.mark.parametrize(
    ("field", "entry", "message"),
    [
        ("block", lambda *args: None, "an entry of 'block' must be a BlockOrder"),
        ("mixer", lambda *args: None, "an entry of 'mixer' must be a class of modules"),
        ("mask", 3, "an entry of 'mask' must be a function"),
        ("masks", print, "field must be one of activation, block"),
    ],
)
def test_entries_of_the_wrong_kind_are_refused(field: str, entry: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        register(field, "mine", entry)


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="block 'pre' is taken"):
        register("block", "pre", ORDERS["pre"])


def test_a_hook_without_axes_is_named() -> None:
    with pytest.raises(HookError, match=r"'attn.hook_mine' has no axes"):
        HookPoint("attn.hook_mine")
