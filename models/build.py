"""The model that a config describes."""

from __future__ import annotations

from .config import TransformerConfig
from .encoder_decoder import HookedEncoderDecoder
from .transformer import HookedTransformer


def make_model(cfg: TransformerConfig) -> HookedTransformer | HookedEncoderDecoder:
    """An encoder-decoder where the config has an encoder, else a decoder or encoder. Weights are random."""
    return HookedTransformer(cfg) if cfg.encoder is None else HookedEncoderDecoder(cfg)
