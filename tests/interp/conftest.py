"""Fixtures of the interp tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxtyping import config


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Annotations are not enforced, as outside the tests, so that a wrong argument reaches the code that has to name it."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)
