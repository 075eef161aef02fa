"""Settings of relative positions that are added to scores."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_types


@dataclass(frozen=True)
class RelativeConfig:
    """Settings of relative positions that are added to scores."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "relative.")
