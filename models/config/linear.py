"""Settings of linear mixers."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_types


@dataclass(frozen=True)
class LinearConfig:
    """Settings of linear mixers."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "linear.")
