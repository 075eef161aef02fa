"""Variants without a class in Hugging Face, against their formulas written out per query."""

from __future__ import annotations

import pytest

from tests.oracles.second_forms import SECOND_FORMS


@pytest.mark.parametrize("form", SECOND_FORMS, ids=lambda form: form.variant)
def test_the_model_is_its_formula(form) -> None:
    assert form.error() < 1e-12
