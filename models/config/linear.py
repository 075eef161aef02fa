"""Settings of linear mixers: retention, Mamba-2, gated delta, Kimi delta, linear attention."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .checks import check_types, one_of, positive
from .names import NAMES

FIXED_DECAYS = ("none", "retention", "lightning")
GATES = ("silu", "sigmoid")


@dataclass(frozen=True)
class LinearConfig:
    """Settings of the mixers "linear", "retention", "mamba2", "gated_delta" and "kimi_delta", and of their "gated_norm"."""

    n_key_heads: int = 0
    """Distinct queries and keys per token, each shared by n_heads / n_key_heads heads in a row; 0 means one per head."""
    conv_width: int = 0
    """Tokens, its own included, that the short convolution before queries, keys and values sees; 0 means none."""
    conv_bias: bool = False
    qkv_activation: str = ""
    """Activation of queries, keys and values, after the convolution; empty means none."""
    decay: str = "retention"
    """Decay of "retention": "retention" (1 - 2^(-5 - head)), "lightning" (slower in later layers) or "none"."""
    decay_rank: int = 0
    """Dimensions that the map from the input to the decays goes through; 0 means a full matrix. `gate_rank` likewise."""
    max_beta: float = 1.0
    """Largest strength of a write in "gated_delta" and "kimi_delta"; above 1 the state's eigenvalues can be negative."""
    gate_activation: str = "silu"
    gate_rank: int = 0
    gate_first: bool = False
    """Whether the gate comes before the norm."""
    norm_groups: int = 0
    """Parts of the full width that are normed on their own, with a gain per dimension; 0 norms heads, with one gain for all."""
    norm_eps: float = 0.0
    """0 means that of the model."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "linear.")
        for each in ("n_key_heads", "conv_width", "decay_rank", "gate_rank", "norm_groups", "norm_eps"):
            if (value := getattr(self, each)) < 0:
                raise ConfigError(f"linear.{each} must be 0 or more, got {value}.")
        positive("linear.max_beta", self.max_beta)
        one_of("linear.decay", self.decay, FIXED_DECAYS)
        one_of("linear.gate_activation", self.gate_activation, GATES)
        if self.qkv_activation:
            one_of("linear.qkv_activation", self.qkv_activation, NAMES["activation"])
