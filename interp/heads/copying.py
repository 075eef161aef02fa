"""Does a head raise the logit of the token that induction calls for? Measured on its real output, not on its weights alone.

At each query with an induction target, the head's output goes straight to the logits: through the final norm, its scale held as
it was in this pass, and the unembedding. The copying effect is the logit it adds to the token at the target key, less the mean
over the vocabulary. Positive: it copies; negative: it suppresses what it finds (McDougall et al. 2023, arXiv 2310.04625). The
values a head really moves include all that earlier layers did to the embedding, which the eigenvalues of W_E W_V W_O W_U miss.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..errors import WeightsError
from ..protocol import hook_names, is_causal
from .weights import norm_fold, output_weights, vocabulary_weights


def copy_readout(
    model: Any, tokens: Int[Tensor, "batch pos"], targets: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "batch query d_model"]:
    """The direction whose product with an output, over the final norm's scale, is the copying effect.

    It is the unembedding of the target token (the mean over targets, where there are several) less the mean over all tokens,
    with the final norm's gain and centring folded in; 0 for a query without target.
    """
    W_U = vocabulary_weights(model)[1]
    unembedded = W_U.T[tokens] - W_U.mean(1)
    weights = targets.to(unembedded.dtype)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    readout = torch.einsum("bqk,bkd->bqd", weights, unembedded) * getattr(model.cfg, "logit_scale", 1.0)
    return norm_fold(model, getattr(model, "ln_final", None)).before(readout[..., None])[..., 0]


def can_measure_copying(model: Any, layers: tuple[int, ...]) -> bool:
    """Whether a head's output reaches the logits through the final norm alone and all tensors needed are in reach."""
    cfg = model.cfg
    if not is_causal(model) or getattr(cfg, "block", "pre") == "post" or getattr(cfg, "d_vocab_out", cfg.d_vocab) != cfg.d_vocab:
        return False
    if getattr(cfg, "head", "lm") != "lm" or not {f"blocks.{layer}.attn.hook_z" for layer in layers} <= hook_names(model):
        return False
    try:
        vocabulary_weights(model)
        for layer in layers:
            output_weights(model, layer)
    except WeightsError:
        return False
    return True


class CopyingMeter:
    """Hooks that collect the copying effect of every head during one forward pass; `effects()` afterwards."""

    def __init__(
        self, model: Any, layers: tuple[int, ...], tokens: Int[Tensor, "batch pos"], targets: Bool[Tensor, "batch query key"]
    ):
        self.model, self.layers = model, layers
        self.readout = copy_readout(model, tokens, targets)
        self.unscaled: dict[int, Float[Tensor, "batch head query"]] = {}
        self.scales: dict[str, Float[Tensor, "batch query"]] = {}

    def hooks(self) -> list[tuple[str, Any]]:
        """Forward hooks: outputs of the heads, and the scales of the norms between them and the logits."""
        norms = ["ln_final.hook_scale", *(f"blocks.{layer}.ln1_post.hook_scale" for layer in self.layers)]
        found = hook_names(self.model)
        hooks = [(f"blocks.{layer}.attn.hook_z", self._read_z(layer)) for layer in self.layers]
        return hooks + [(name, self._read_scale(name)) for name in norms if name in found]

    def _read_z(self, layer: int) -> Any:
        def read(z: Tensor, hook: Any) -> None:
            asked = torch.einsum("bpd,hkd->bphk", self.readout, output_weights(self.model, layer))
            self.unscaled[layer] = (z.float() * asked).sum(-1).transpose(1, 2)

        return read

    def _read_scale(self, name: str) -> Any:
        def read(scale: Tensor, hook: Any) -> None:
            self.scales[name] = scale[..., 0].float()

        return read

    def effects(self, layer: int) -> Float[Tensor, "batch head query"]:
        """Logits that each head adds to the token its query should copy, less the mean over the vocabulary."""
        effect = self.unscaled[layer]
        for name in ("ln_final.hook_scale", f"blocks.{layer}.ln1_post.hook_scale"):
            if name in self.scales:
                effect = effect / self.scales[name][:, None]
        return effect
