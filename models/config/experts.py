"""Settings of a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_types


@dataclass(frozen=True)
class ExpertsConfig:
    """Settings of a mixture of experts."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "experts.")
