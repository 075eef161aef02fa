"""Kernels: weights kappa(q, k) = f(<q, k>) of any f, each row divided by its sum. The exponential makes this a softmax.

`KERNELS` names the known ones; `register_kernel` adds a user's. Rows whose sum is not positive have no such weights: they are
refused or reported, never returned as if they had.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from ..errors import ConfigError, InputError, closest
from ..norms import widened

Elementwise = Callable[[Tensor], Tensor]
Weights = Float[Tensor, "batch head query key"]

ON_NONPOSITIVE = ("raise", "report")


class KernelWarning(UserWarning):
    """Rows of kernel weights whose sum is not positive, so that dividing by it does not make them an average."""


@dataclass(frozen=True)
class Kernel:
    """kappa(q, k) = weight(<feature(q), feature(k)>), all functions elementwise.

    Give `weight`, or, where it is positive, its logarithm `log_weight`, which cannot overflow. `feature` is applied to queries
    and keys first (Katharopoulos et al. 2020, arXiv 2006.16236). `scaled`: whether inner products are divided by sqrt(d_QK).
    """

    weight: Elementwise | None = None
    log_weight: Elementwise | None = None
    feature: Elementwise | None = None
    scaled: bool = False

    def __post_init__(self) -> None:
        if (self.weight is None) == (self.log_weight is None):
            raise ConfigError("a kernel needs exactly one of weight and log_weight.")

    def scale(self, d_qk: int) -> float:
        """What inner products of d_qk entries are multiplied by before the weight is taken."""
        return d_qk**-0.5 if self.scaled else 1.0

    def features(self, x: Tensor) -> Tensor:
        """Queries or keys as the inner product sees them."""
        return x if self.feature is None else self.feature(x)


def _same(x: Tensor) -> Tensor:
    return x


def elu_plus_one(x: Tensor) -> Tensor:
    """A feature map that is positive everywhere: x + 1 above 0, exp(x) below."""
    return F.elu(x) + 1


KERNELS: dict[str, Kernel] = {
    "exp": Kernel(log_weight=_same, scaled=True),
    "identity": Kernel(weight=_same),
    "elu1": Kernel(weight=_same, feature=elu_plus_one),
}
"""Kernels by name. "exp" is exp(<q, k> / sqrt(d_QK)), "identity" <q, k> itself, "elu1" <phi(q), phi(k)> with phi = elu + 1."""


def register_kernel(name: str, kernel: Kernel | Elementwise) -> None:
    """Add a kernel, or a plain function f of inner products, under a new name. Raises ConfigError for a name that is taken."""
    if name in KERNELS:
        raise ConfigError(f"kernel {name!r} exists already; choose another name.")
    KERNELS[name] = as_kernel(kernel)


def as_kernel(kernel: str | Kernel | Elementwise) -> Kernel:
    """The kernel of a name, or a kernel or function as it is. Raises ConfigError for an unknown name or another kind of thing."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            raise ConfigError(f"kernel {kernel!r} is not known; known are {', '.join(KERNELS)}{closest(kernel, KERNELS)}.")
        return KERNELS[kernel]
    if not callable(kernel):
        raise ConfigError(f"kernel must be a name, a Kernel or a function of inner products, got {kernel!r}.")
    return Kernel(weight=kernel)


def check_on_nonpositive(value: object) -> str:
    """`on_nonpositive` as it is. Raises ConfigError where it is neither "raise" nor "report"."""
    if value not in ON_NONPOSITIVE:
        raise ConfigError(f"on_nonpositive must be 'raise' or 'report', got {value!r}.")
    return str(value)


def kernel_pattern(scores: Weights, kernel: Kernel, on_nonpositive: str = "raise") -> Weights:
    """Kernel weights of scaled inner products, each row divided by its sum; computed at least in float32.

    scores: -inf where a key is masked; such keys, and rows without any other, get weight 0.
    on_nonpositive: what to do about other rows whose sum is 0, negative, or not a number: "raise" an InputError naming the first
        one, or "report" them in a KernelWarning. Reported rows are divided by their sum where it is negative, and 0 elsewhere.
    """
    hidden = scores == float("-inf")
    visible = widened(scores).masked_fill(hidden, 0.0)
    # A positive kernel's rows are shifted by their largest logarithm, which cancels in the division and prevents overflow.
    weights = _shifted(kernel.log_weight(visible), hidden) if kernel.log_weight else kernel.weight(visible)  # type: ignore[misc]
    _check_shape(weights, scores)
    weights = weights.masked_fill(hidden, 0.0)
    totals = weights.sum(-1, keepdim=True)
    usable = (totals > 0) & totals.isfinite()
    _refuse_or_report(~(usable | hidden.all(-1, keepdim=True)), totals, on_nonpositive)
    divides = usable | ((totals < 0) & totals.isfinite())
    return (weights / totals.masked_fill(~divides, 1.0)).masked_fill(~divides, 0.0).to(scores.dtype)


def _shifted(logs: Weights, hidden: Bool[Tensor, "batch head query key"]) -> Weights:
    largest = logs.masked_fill(hidden, float("-inf")).amax(-1, keepdim=True)
    return (logs - largest.masked_fill(~largest.isfinite(), 0.0)).masked_fill(hidden, float("-inf")).exp()


def _check_shape(weights: object, scores: Tensor) -> None:
    if not isinstance(weights, Tensor) or weights.shape != scores.shape:
        got = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ConfigError(f"the kernel returned {got} for inner products of shape {tuple(scores.shape)}; it must be elementwise.")


def _refuse_or_report(bad: Bool[Tensor, "batch head query 1"], totals: Float[Tensor, "batch head query 1"], how: str) -> None:
    if not bool(bad.any()):
        return
    batch, head, query, _ = bad.nonzero()[0].tolist()
    message = (
        f"{int(bad.sum())} of {bad.numel()} rows of kernel weights have a sum that is not positive and finite; the first, batch "
        f"{batch}, head {head}, query {query}, sums to {totals[batch, head, query].item():.3g}, so its weights are no average"
    )
    if how == "raise":
        raise InputError(f"{message}; use a positive kernel, or on_nonpositive='report' to go on.")
    warnings.warn(f"{message}.", KernelWarning, stacklevel=3)
