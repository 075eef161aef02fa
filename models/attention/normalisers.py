"""What turns a row of scores into weights.

A `Normaliser` is made as normaliser(cfg, layer) and maps scores [batch, head, query, key], -inf where masked, to the pattern.
A row that sees no key gets weight 0 everywhere.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ..config import TransformerConfig
from ..config.checks import is_number
from ..errors import ConfigError
from ..kernels.kernel_functions import Kernel, as_kernel, check_on_nonpositive, kernel_pattern
from ..kernels.normalisers import sigmoid_pattern
from ..kernels.reference import softmax_pattern
from .normaliser import Normaliser
from .sink import SinkSoftmax


class Softmax(Normaliser):
    """exp(score) over its sum: each row sums to 1."""

    fusable = True

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()

    def forward(self, scores: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query key"]:
        return softmax_pattern(scores)


class Sigmoid(Normaliser):
    """sigmoid(score - log n), n being the keys that the query sees, or `cfg.extra["sigmoid_bias"]` added where that is given."""

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.bias = cfg.extra.get("sigmoid_bias")
        if self.bias is not None and not is_number(self.bias):
            raise ConfigError(f'extra["sigmoid_bias"] must be a number, got {self.bias!r}.')

    def forward(self, scores: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query key"]:
        return sigmoid_pattern(scores, self.bias)


class KernelSum(Normaliser):
    """Any kernel's weights, each row divided by its sum.

    `cfg.extra["kernel"]` names it in `KERNELS`, "exp" if it does not say; `cfg.extra["on_nonpositive"]` is what happens to rows
    whose sum is not positive, "raise" or "report". Scores are scaled by `cfg.attn_scale` first, whatever the kernel.
    """

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.kernel = kernel_of(cfg)
        self.on_nonpositive = check_on_nonpositive(cfg.extra.get("on_nonpositive", "raise"))

    def forward(self, scores: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query key"]:
        return kernel_pattern(scores, self.kernel, self.on_nonpositive)


def kernel_of(cfg: TransformerConfig) -> Kernel:
    """The kernel that `KernelSum` divides by its sum. Raises ConfigError where `cfg.extra` names none that there is."""
    return as_kernel(cfg.extra.get("kernel", "exp"))


NORMALISERS: dict[str, type[Normaliser]] = {
    "softmax": Softmax,
    "sigmoid": Sigmoid,
    "kernel_sum": KernelSum,
    "sink_softmax": SinkSoftmax,
}
