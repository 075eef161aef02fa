"""Settings of a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .checks import check_types, one_of, positive
from .names import PART_NAMES

WEIGHED = ("output", "input")


@dataclass(frozen=True)
class ExpertsConfig:
    """Sparsely gated experts in place of the MLP (Shazeer et al. 2017, arXiv 1701.06538): a token goes to the `n_active` best.

    Whether an expert is gated, and its activation, are `gated_mlp` and `activation` of the model.
    """

    n_experts: int
    n_active: int
    """Experts that each token goes to."""
    d_expert: int
    """Hidden width of an expert."""

    router: str = "softmax"
    """What makes weights of logits, a name in `models.routing.ROUTERS`: "softmax" over all experts or "sigmoid" of each."""
    normalise: bool = False
    """Divide the weights of a token's experts by their sum."""
    scale: float = 1.0
    """Multiplies the weights, after that."""
    router_bias: bool = False
    correction: bool = False
    """A bias per expert that counts for the ranking and not for the weights (Wang et al. 2024, arXiv 2408.15664)."""
    n_groups: int = 1
    """Experts lie in groups of equal size, and a token uses the `n_active_groups` best (DeepSeek-V2, arXiv 2405.04434)."""
    n_active_groups: int = 1
    group_top: int = 1
    """A group ranks by the sum of its `group_top` best experts: 1 in DeepSeek-V2, 2 in DeepSeek-V3."""

    weighed: str = "output"
    """"output": the outputs of experts are added by weight. "input": an expert reads weight * x, and its output counts once."""
    bias: bool = False
    """Whether the projections of experts have biases."""
    limit: float | None = None
    """Clamps what the activation sees to at most `limit`, and what it gates to +-`limit` (gpt-oss)."""
    up_offset: float = 0.0
    """Added to what the activation gates, after the clamp: 1 in gpt-oss."""

    d_shared: int = 0
    """Hidden width of an expert that every token goes to beside its own; 0 for none."""
    shared_gate: bool = False
    """Multiply the shared expert's output by the sigmoid of a linear map of its input (Qwen2-MoE)."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self), "experts.")
        one_of("experts.router", self.router, PART_NAMES["router"])
        one_of("experts.weighed", self.weighed, WEIGHED)
        for field in ("n_experts", "n_active", "d_expert", "n_groups", "n_active_groups", "group_top"):
            positive(f"experts.{field}", getattr(self, field))
        if self.limit is not None:
            positive("experts.limit", self.limit)
        if self.d_shared < 0:
            raise ConfigError(f"experts.d_shared must be a whole number of 0 or more, got {self.d_shared}.")
        self._check_counts()
        self._check_options()

    def _check_counts(self) -> None:
        if self.n_experts % self.n_groups:
            raise ConfigError(f"experts.n_experts={self.n_experts} must be a multiple of experts.n_groups={self.n_groups}.")
        size = self.n_experts // self.n_groups
        for field, most, of in (
            ("n_active_groups", self.n_groups, "groups there are"),
            ("group_top", size, "experts a group has"),
            ("n_active", self.n_active_groups * size, "experts its active groups have"),
        ):
            if (value := getattr(self, field)) > most:
                raise ConfigError(f"experts.{field} must be at most the {most} {of}, got {value}.")

    def _check_options(self) -> None:
        if self.shared_gate and not self.d_shared:
            raise ConfigError("experts.shared_gate needs a shared expert, got experts.d_shared=0.")
        if self.weighed == "input" and (self.bias or self.up_offset):
            raise ConfigError("experts.weighed='input' needs experts without bias and up_offset, whose output at weight 0 is 0.")
