"""Settings of a temperature that depends on the position."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_types, positive


@dataclass(frozen=True)
class TemperatureConfig:
    """Queries are multiplied by 1 + scale * ln(1 + floor((position + offset) / floor_scale)), as in Llama 4.

    Nakanishi 2025 (arXiv 2501.19399) has the idea; `floor_scale` is in tokens.
    """

    scale: float = 0.1
    floor_scale: float = 8192.0
    offset: float = 1.0

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "temperature.")
        positive("temperature.floor_scale", self.floor_scale)
