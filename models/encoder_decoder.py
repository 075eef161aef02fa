"""HookedEncoderDecoder: an encoder reads the source, a decoder writes the target and attends to the encoder's last states."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .attention.context import AttentionContext, CrossContext

from .config import TransformerConfig
from .errors import ConfigError, InputError
from .hooked import HookedModule
from .stack import Stack
from .text import Text, check_mask, check_tokens
from .transformer import next_token_loss, token_positions


class HookedEncoderDecoder(HookedModule, Text):
    """Source and target tokens in, logits [batch, target pos, d_vocab_out] out.

    Hooks are those of a decoder under `encoder.` and `decoder.`; cross-attention is `decoder.blocks.{l}.cross_attn`.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        if cfg.encoder is None:
            raise ConfigError("an encoder-decoder needs encoder, the config of its encoder; HookedTransformer has none.")
        self.cfg, self.n_layers = cfg, cfg.n_layers
        self.tokenizer = None
        self.encoder, self.decoder = Stack(cfg.encoder), Stack(cfg)
        self._name_hook_points()
        self.eval()

    def forward(
        self,
        tokens: Any,
        decoder_tokens: Any = None,
        *,
        attention_mask: Any = None,
        decoder_attention_mask: Any = None,
        return_type: str | None = "logits",
    ) -> Any:
        """Logits [batch, target pos, d_vocab_out] of source tokens [batch, pos] and target tokens [batch, target pos].

        attention_mask, decoder_attention_mask: 1 or True at real tokens of either. return_type: "logits", "loss" (mean
        next-token cross-entropy of the target in nats), "both", or None. Raises InputError where the batches differ.
        """
        source, target = self._as_tokens(tokens, None), self._as_tokens(decoder_tokens, None)
        if len(source) != len(target):
            raise InputError(f"tokens have {len(source)} rows and decoder_tokens {len(target)}; give as many of each.")
        cross = self.encode(source, attention_mask, target.shape[1])
        real = check_mask(decoder_attention_mask, target.shape)
        check_tokens(target, self.cfg)
        positions = token_positions(target.shape[1], real, None, target.device)
        context = AttentionContext(self.cfg, positions, 0, real)
        context.cross = cross
        x = self.decoder.embed_tokens(target, positions)
        logits = self.decoder.unembed_resid(self.decoder.run_blocks(x, context, None, range(self.n_layers)))
        if return_type in ("loss", "both"):
            loss = next_token_loss(logits, target, real)
            return loss if return_type == "loss" else (logits, loss)
        return logits if return_type == "logits" else None

    def encode(self, tokens: Tensor, attention_mask: Any, n_queries: int) -> CrossContext:
        """The encoder's last states, as the decoder's cross-attention reads them."""
        cfg = self.encoder.cfg
        check_tokens(tokens, cfg)
        real = check_mask(attention_mask, tokens.shape)
        positions = token_positions(tokens.shape[1], real, None, tokens.device)
        context = AttentionContext(cfg, positions, 0, real)
        x = self.encoder.run_blocks(self.encoder.embed_tokens(tokens, positions), context, None, range(cfg.n_layers))
        return CrossContext(self.cfg, self.encoder.unembed_resid(x), real, n_queries)
