"""What parts of a model that work together must agree on: encoder and decoder, layers that share keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from .transformer import TransformerConfig

WITH_CROSS_ATTENTION = ("pre", "post")
"""Block orders that have a place for cross-attention."""


def check_pairing(cfg: TransformerConfig) -> None:
    """Raise ConfigError where `cfg.encoder` does not fit the decoder that `cfg` describes."""
    encoder = cfg.encoder
    if cfg.cross_attention and cfg.block not in WITH_CROSS_ATTENTION:
        raise ConfigError(f"cross_attention needs block to be one of {', '.join(WITH_CROSS_ATTENTION)}, got {cfg.block!r}.")
    if encoder is None:
        if cfg.share_embeddings:
            raise ConfigError("share_embeddings is for models with an encoder, and encoder is None.")
        return
    if not cfg.cross_attention:
        raise ConfigError("a decoder needs cross_attention=True to read its encoder, got False.")
    if encoder.encoder is not None or encoder.cross_attention:
        raise ConfigError("encoder must be a plain stack, without an encoder or cross_attention of its own.")
    if encoder.head != "none":
        raise ConfigError(f"encoder.head must be 'none', since its states are what the decoder reads, got {encoder.head!r}.")
    if encoder.d_model != cfg.d_model:
        raise ConfigError(f"encoder.d_model must equal the decoder's, {cfg.d_model}, got {encoder.d_model}.")
    if cfg.share_embeddings and encoder.d_vocab != cfg.d_vocab:
        raise ConfigError(
            f"share_embeddings needs one vocabulary, got encoder.d_vocab={encoder.d_vocab} and d_vocab={cfg.d_vocab}."
        )
    if cfg.start_token_id is not None and not 0 <= cfg.start_token_id < cfg.d_vocab:
        raise ConfigError(f"start_token_id must lie in 0 to {cfg.d_vocab - 1}, got {cfg.start_token_id}.")


def check_kv_sharing(cfg: TransformerConfig) -> None:
    """Raise ConfigError where a layer uses keys and values that no layer before it keeps, or that do not fit its queries."""
    if cfg.d_layer_embed and cfg.block not in ("sandwich_scaled", "altup"):
        raise ConfigError(f"d_layer_embed needs block='sandwich_scaled' or 'altup', whose last part reads it, got {cfg.block!r}.")
    layers = [cfg.for_layer(layer) for layer in range(cfg.n_layers)] if cfg.by_type else []
    for layer, reader in enumerate(layers):
        if reader.mixer != "kv_reader":
            continue
        source = reader.kv_from
        if not 0 <= source < layer or layers[source].mixer != "kv_store":
            raise ConfigError(f"kv_from of layer {layer} must be an earlier layer with mixer='kv_store', got {source}.")
        for each in ("n_kv_heads", "d_head", "d_value"):
            if getattr(reader, each) != (kept := getattr(layers[source], each)):
                raise ConfigError(f"{each} of layer {layer} must be that of layer {source}, whose keys it uses, {kept}.")
