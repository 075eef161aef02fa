"""The last states to what a model returns: language-model logits, masked-language-model logits, or the states themselves."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .config import TransformerConfig
from .mlp import ACTIVATION_FUNCTIONS
from .norms import make_norm


class Head:
    """The head of a model, as a mixin of modules with a `cfg` and an `embed`."""

    cfg: TransformerConfig
    embed: nn.Embedding

    def _make_head(self, cfg: TransformerConfig) -> None:
        self.ln_final = make_norm(cfg) if cfg.final_norm else make_norm(cfg.replace(norm="none", qk_norm="none"))
        if cfg.head == "none":
            return
        if cfg.head == "mlm":
            self.head_dense = nn.Linear(cfg.d_model, cfg.d_model, bias=cfg.head_bias)
            self.head_norm = make_norm(cfg)
        self.unembed = nn.Linear(cfg.d_model, cfg.d_vocab_out, bias=cfg.unembed_bias)
        if cfg.tie_embeddings:
            self.unembed.weight = self.embed.weight

    def unembed_resid(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits of a residual stream taken after the last block; a model without head returns the normed states."""
        cfg = self.cfg
        x = self.ln_final(x)
        if cfg.head == "none":
            return x
        if cfg.head == "mlm":
            x = self.head_norm(ACTIVATION_FUNCTIONS[cfg.head_activation](self.head_dense(x)))
        logits = self.unembed(x)
        if cfg.logit_scale != 1.0:
            logits = logits * cfg.logit_scale
        cap = cfg.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)
