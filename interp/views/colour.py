"""A sequential colour scale whose equal steps look equal: equal distances in OKLab, one scale each for light and dark pages.

Source: Björn Ottosson, "A perceptual color space for image processing" (2020), for the OKLab transform.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache
from itertools import accumulate, pairwise

Lab = tuple[float, float, float]

_LIGHT = ((0.975, 0.018, 105.0), (0.33, 0.13, 275.0))
_DARK = ((0.26, 0.05, 280.0), (0.93, 0.15, 105.0))
_RICHEST = 0.125
"""Chroma half-way along a scale, where both lightness ends have room for it."""


@cache
def ramp(dark: bool, steps: int = 64) -> tuple[str, ...]:
    """Hex colours from the lowest value (near the page's ground) to the highest (far from it)."""
    fine = [_clipped(*_lch(dark, place / 256)) for place in range(257)]
    along = [0.0, *accumulate(math.dist(one, other) for one, other in pairwise(fine))]
    return tuple(to_hex(_at(fine, along, along[-1] * step / (steps - 1))) for step in range(steps))


def _at(points: list[Lab], along: list[float], wanted: float) -> Lab:
    """The point at a distance along a path of points."""
    place = min(max(bisect_left(along, wanted), 1), len(points) - 1)
    share = (wanted - along[place - 1]) / (along[place] - along[place - 1])
    first, second = points[place - 1], points[place]
    lightness, a, b = (one + share * (other - one) for one, other in zip(first, second, strict=True))
    return lightness, a, b


def _lch(dark: bool, t: float) -> tuple[float, float, float]:
    """Lightness and hue change evenly along the scale; chroma rises to the middle and falls again."""
    low, high = _DARK if dark else _LIGHT
    lightness, chroma, hue = (a + (b - a) * t for a, b in zip(low, high, strict=True))
    return lightness, chroma + (_RICHEST - (low[1] + high[1]) / 2) * math.sin(math.pi * t), hue


def _clipped(lightness: float, chroma: float, hue: float) -> Lab:
    """The point in OKLab, with as much of the chroma as a screen can show."""
    angle = math.radians(hue)

    def at(share: float) -> Lab:
        return (lightness, share * chroma * math.cos(angle), share * chroma * math.sin(angle))

    low, high = 0.0, 1.0
    if _shown(at(high)):
        return at(high)
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if _shown(at(middle)) else (low, middle)
    return at(low)


def _shown(lab: Lab) -> bool:
    return all(-1e-6 <= channel <= 1 + 1e-6 for channel in _linear(lab))


def _linear(lab: Lab) -> tuple[float, float, float]:
    """OKLab to linear sRGB."""
    lightness, a, b = lab
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def to_hex(lab: Lab) -> str:
    """An OKLab colour as #rrggbb."""
    channels = (min(max(channel, 0.0), 1.0) for channel in _linear(lab))
    encoded = (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in channels)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in encoded)
