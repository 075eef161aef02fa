"""Axes of a chart: where values stand, and which of them get a tick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .page import rounded


@dataclass(frozen=True)
class Axis:
    """One axis: where a value stands in pixels, and the values that get a tick. log: over the logarithm."""

    label: str
    low: float
    high: float
    start: float
    end: float
    log: bool

    def place(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def fit_axis(
    label: str,
    values: Sequence[float],
    pixels: tuple[float, float],
    log: bool,
    fixed: tuple[int | float, int | float] | None = None,
) -> Axis:
    """An axis over all values, or over `fixed`: their exact range along x, rounded outwards to ticks along y."""
    start, end = pixels
    low, high = map(float, fixed or (min(values), max(values)))
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    along_y = end < start
    if along_y and not fixed and not log:
        step = _step(low, high)
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Axis(label, low, high, start, end, log)


def _step(low: float, high: float, wanted: int = 5) -> float:
    """1, 2 or 5 times a power of ten that divides the range into about `wanted` parts."""
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def ticks(axis: Axis) -> list[float]:
    """Round values inside the axis: multiples of a step, or powers of ten (with 2 and 5 between where they are few)."""
    if not axis.log:
        step = _step(axis.low, axis.high)
        first = math.ceil(axis.low / step - 1e-9)
        return [rounded(n * step, 12) for n in range(first, math.floor(axis.high / step + 1e-9) + 1)]
    decades = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        values = [factor * 10.0**decade for decade in decades for factor in factors]
        inside = [value for value in values if axis.low * 0.999 <= value <= axis.high * 1.001]
        if len(inside) >= 4:
            return inside
    return inside or [axis.low, axis.high]


def tick_text(value: float) -> str:
    """A tick as people write it: 10k, 0.25, 1e−5."""
    size = abs(value)
    if size >= 10_000 or 0 < size < 1e-4:
        text = f"{value / 1000:g}k" if 10_000 <= size < 1e6 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    else:
        text = f"{value:g}"
    return text.replace("-", "−")
