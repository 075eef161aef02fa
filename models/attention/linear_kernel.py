"""Linear attention: a feature map and a normaliser in place of the softmax (Katharopoulos et al. 2020, arXiv 2006.16236)."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from ..config import TransformerConfig
from ..hooks import HookPoint, hooked_scores
from ..kernels.linear import kernel
from .attention import Attention, Inputs
from .context import AttentionContext
from .normalisers import NORMALISERS
from .recurrent import Recurrent


class LinearAttention(Recurrent):
    """Weights phi(q) . phi(k) over their sum, phi(x) = elu(x) + 1: each row is a distribution, as after a softmax.

    `hook_attn_scores` holds the logarithms of those products, -inf where masked, so that the pattern is their softmax. The
    state has one more column than the values, the sum of phi(k).
    """

    signed_pattern = False
    rule = kernel
    own_hooks = ("state", "attn_scores")
    hook_attn_scores: HookPoint

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__(cfg, layer)
        self.normaliser = NORMALISERS["softmax"](cfg, layer)

    @property
    def readers(self) -> dict[str, int]:
        """As softmax attention, unless out steps read the same input."""
        return {} if self.out_steps else self.n_projected

    def dynamics(self, x: Inputs) -> tuple[Tensor, ...]:
        """Nothing decays, and all tokens write alike."""
        return ()

    def prepare(self, q: Tensor, k: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:
        """The steps of softmax attention, then the feature map; a scale would cancel."""
        q, k = Attention.prepare(self, q, k, context)
        return kernel.features(q), kernel.features(k)

    @property
    def _shows_weights(self) -> bool:
        return super()._shows_weights or self.hook_attn_scores.is_hooked

    def weights(self, q: Tensor, k: Tensor, rest: Sequence[Tensor]) -> Float[Tensor, "batch head query key"]:
        """The softmax of the hooked scores, hooked."""
        scores = hooked_scores(self.hook_attn_scores, kernel.log_products(q, k).to(q.dtype))
        return self.hook_pattern(self.normaliser(scores))
