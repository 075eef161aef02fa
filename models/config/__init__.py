"""What a model is, as frozen plain data. A config imports no torch, is validated when it is made, and survives JSON."""

from __future__ import annotations

from .alibi import AlibiConfig
from .altup import AltUpConfig
from .experts import ExpertsConfig
from .latent import LatentConfig
from .linear import LinearConfig
from .names import NAMES
from .relative import RelativeConfig
from .rotary import RotaryConfig
from .sparse import SparseConfig
from .temperature import TemperatureConfig
from .transformer import TransformerConfig

__all__ = [
    "NAMES",
    "AlibiConfig",
    "AltUpConfig",
    "ExpertsConfig",
    "LatentConfig",
    "LinearConfig",
    "RelativeConfig",
    "RotaryConfig",
    "SparseConfig",
    "TemperatureConfig",
    "TransformerConfig",
]
