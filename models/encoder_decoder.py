"""HookedEncoderDecoder: an encoder reads the source, a decoder writes the target and attends to the encoder's last states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .attention.context import AttentionContext, CrossContext
from .cache import KVCache
from .config import TransformerConfig
from .errors import ConfigError, HookError, InputError
from .hooked import HookedModule
from .stack import Stack
from .text import Text, check_cache, check_mask, check_return_type, check_tokens, is_text
from .transformer import next_token_loss, token_positions


class HookedEncoderDecoder(HookedModule, Text):
    """Source and target tokens in, logits [batch, target pos, d_vocab_out] out.

    Hooks are those of a model of each half under `encoder.` and `decoder.`; `decoder.blocks.{l}.cross_attn` has those of
    attention, with queries of the target and keys of the source. `cfg` describes the decoder, `cfg.encoder` the encoder.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        if cfg.encoder is None:
            raise ConfigError("an encoder-decoder needs encoder, the config of its encoder; HookedTransformer has none.")
        self.cfg, self.n_layers = cfg, cfg.n_layers
        self.tokenizer = None
        self.encoder, self.decoder = Stack(cfg.encoder), Stack(cfg)
        if cfg.share_embeddings:
            self.encoder.embed.weight = self.decoder.embed.weight
        self._name_hook_points()
        self.eval()

    def forward(
        self,
        tokens: Any,
        decoder_tokens: Any = None,
        *,
        attention_mask: Any = None,
        decoder_attention_mask: Any = None,
        cache: KVCache | None = None,
        prepend_bos: bool | None = None,
        return_type: str | None = "logits",
    ) -> Any:
        """Logits [batch, target pos, d_vocab_out] of source tokens [batch, source pos] and target tokens [batch, target pos].

        tokens: ids, or text, which is closed with EOS as the sources of these models are.
        decoder_tokens: the target so far, beginning with `cfg.start_token_id`, as the model was trained.
        attention_mask, decoder_attention_mask: 1 or True at real tokens of source and target; padding may be on either side.
        cache: a `KVCache(model.cfg)` that holds, and then receives, the target's keys and values; no gradients then. Its first
            call also encodes the source and keeps it; later ones take None for `tokens`, and only new target tokens.
        return_type: "logits", "loss" (mean next-token cross-entropy of the target, in nats), "both", or None.
        Raises InputError where source and target differ in rows, or do not fit their vocabulary or context.
        """
        check_return_type(return_type, self.cfg)
        if decoder_tokens is None:
            raise InputError(
                f"decoder_tokens are missing: the target so far, at least its first token, {self.cfg.start_token_id}."
            )
        target = self._as_tokens(decoder_tokens, None)
        if cache is not None:
            check_cache(cache, target.shape, self.cfg)
        with torch.set_grad_enabled(torch.is_grad_enabled() and cache is None):
            cross = self._source(tokens, attention_mask, cache, prepend_bos)
            x, context = self._decode(target, decoder_attention_mask, cache, cross)
            logits = self.decoder.unembed_resid(x)
            if return_type in ("loss", "both"):
                loss = next_token_loss(logits, target, context.real)
                return loss if return_type == "loss" else (logits, loss)
            return logits if return_type == "logits" else None

    def encode(self, tokens: Any, *, attention_mask: Any = None) -> Float[Tensor, "batch pos d_model"]:
        """The encoder's last states, which cross-attention reads; arguments as in `forward`."""
        return self._encode(self._source_tokens(tokens, None), attention_mask).states

    def _source(self, tokens: Any, attention_mask: Any, cache: KVCache | None, prepend_bos: bool | None) -> CrossContext:
        """The encoded source: of these tokens, or what the cache holds of earlier ones."""
        if cache is None or cache.cross is None:
            if tokens is None:
                raise InputError("tokens are missing: the source, which the first call with a cache, and any without, needs.")
            return self._encode(self._source_tokens(tokens, prepend_bos), attention_mask)
        if tokens is not None or attention_mask is not None:
            raise InputError(
                "the cache holds its source already; pass None for tokens, without attention_mask, or a new KVCache."
            )
        for point in self._hook_points.values():
            if point.name.startswith("encoder.") and point.is_edited:
                raise HookError(f"hook on '{point.name}' cannot run: the cache holds the states of its source already.")
        return cache.cross

    def _source_tokens(self, tokens: Any, prepend_bos: bool | None) -> Int[Tensor, "batch pos"]:
        ids, eos = self._as_tokens(tokens, prepend_bos), self.cfg.eos_token_ids
        if not is_text(tokens) or not eos or bool((ids[:, -1] == eos[0]).all()):
            return ids
        return torch.cat((ids, torch.full_like(ids[:, :1], eos[0])), 1)

    def _encode(self, tokens: Int[Tensor, "batch pos"], attention_mask: Any) -> CrossContext:
        cfg = self.encoder.cfg
        check_tokens(tokens, cfg)
        real = check_mask(attention_mask, tokens.shape)
        positions = token_positions(tokens.shape[1], real, None, tokens.device)
        x = self.encoder.embed_tokens(tokens, positions)
        x = self.encoder.run_blocks(x, AttentionContext(cfg, positions, 0, real), None, range(cfg.n_layers))
        return CrossContext(self.cfg, self.encoder.unembed_resid(x), real)

    def _decode(
        self, target: Int[Tensor, "batch pos"], mask: Any, cache: KVCache | None, cross: CrossContext
    ) -> tuple[Float[Tensor, "batch pos d_model"], AttentionContext]:
        """The decoder's stream after its last block."""
        if len(target) != len(cross.states):
            raise InputError(f"the source has {len(cross.states)} rows and decoder_tokens {len(target)}; give as many of each.")
        past = 0 if cache is None else check_cache(cache, target.shape, self.cfg)
        check_tokens(target, self.cfg, n_past=past)
        real = check_mask(mask, target.shape, "decoder_attention_mask")
        positions = token_positions(target.shape[1], real, cache, target.device)
        cross.n_queries = target.shape[1]
        try:
            if cache is None:
                context = AttentionContext(self.cfg, positions, 0, real)
            else:
                context = AttentionContext(self.cfg, *cache.append_tokens(target.shape[0], positions, real))
                cache.cross, cross.kept = cross, {} if cross.kept is None else cross.kept
            context.cross = cross
            x = self.decoder.embed_tokens(target, positions)
            return self.decoder.run_blocks(x, context, cache, range(self.n_layers)), context
        except BaseException:
            if cache is not None:
                cache.rewind(past)
            raise

    @torch.no_grad()
    def generate(
        self,
        tokens: Any,
        max_new_tokens: int = 20,
        *,
        attention_mask: Any = None,
        decoder_tokens: Any = None,
        decoder_attention_mask: Any = None,
        prepend_bos: bool | None = None,
        **options: Any,
    ) -> str | list[str] | Tensor:
        """Write a target for a source, [batch, 1 + max_new_tokens] with its first token; text for text.

        decoder_tokens: how targets begin, [batch, pos]; None begins each with `cfg.start_token_id`. decoder_attention_mask: 1 at
            its real tokens, padding on the left.
        The source is encoded once. Further options as in `models.generate.generate`.
        """
        from .generate import generate

        source = self._source_tokens(tokens, prepend_bos)
        cross = self._encode(source, attention_mask)
        if decoder_tokens is None:
            if self.cfg.start_token_id is None:
                raise InputError("this model's config names no start_token_id; give decoder_tokens, how each target begins.")
            decoder_tokens = torch.full((len(source), 1), self.cfg.start_token_id, device=source.device)
        target = Target(self, cross, tokens)
        return generate(target, decoder_tokens, max_new_tokens, attention_mask=decoder_attention_mask, **options)

    def save(self, folder: str | Path) -> None:
        """Write config, weights and tokeniser to a folder that `load_model` reads."""
        from .loading.own_format import save_model

        save_model(self, folder)


class Target:
    """The decoder with its source at hand, as decoding drives it. What it writes has the form of the source, text or ids."""

    def __init__(self, model: HookedEncoderDecoder, cross: CrossContext, source: Any) -> None:
        self.model, self.cross, self.source, self.cfg = model, cross, source, model.cfg

    def _as_tokens(self, tokens: Any, prepend_bos: bool | None) -> Int[Tensor, "batch pos"]:
        return self.model._as_tokens(tokens, prepend_bos)

    def _as_given(self, prompt: Any, tokens: Tensor) -> str | list[str] | Tensor:
        return self.model._as_given(self.source, tokens)

    def next_token_logits(
        self, tokens: Int[Tensor, "batch pos"], *, attention_mask: Any = None, cache: KVCache | None = None
    ) -> Float[Tensor, "batch vocab"]:
        """Logits after the last target token."""
        x, _ = self.model._decode(tokens, attention_mask, cache, self.cross)
        return self.model.decoder.unembed_resid(x[:, -1:])[:, 0]
