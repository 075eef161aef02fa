"""HookedTransformer: embedding, blocks, final norm and unembedding, every tensor of interest behind a hook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .attention.context import AttentionContext, TokenInfo
from .cache import KVCache
from .config import TransformerConfig
from .errors import InputError
from .hooked import HookedModule
from .layer_embedding import SHARED
from .stack import Stack
from .text import Text, check_cache, check_mask, check_partial, check_resid, check_return_type, check_tokens
from .token_info import token_info

Tokens = Int[Tensor, "batch pos"]


class HookedTransformer(Stack, HookedModule, Text):
    """A decoder (or, with `causal=False`, an encoder) of any shape that `TransformerConfig` describes.

    Tokens [batch, pos] in, logits [batch, pos, d_vocab_out] out. Hook names and axes are listed in `models.hooks.AXES`,
    those of this model in `model.hook_names`.
    """

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__(cfg)
        self.tokenizer = None
        self._name_hook_points()
        self.eval()

    def forward(
        self,
        tokens: Any,
        *,
        attention_mask: Any = None,
        token_types: Any = None,
        documents: Any = None,
        prefix: Any = None,
        visible: Any = None,
        global_tokens: Any = None,
        cache: KVCache | None = None,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        prepend_bos: bool | None = None,
        return_type: str | None = "logits",
    ) -> Any:
        """Logits [batch, pos, d_vocab_out] of tokens [batch, pos] or [pos], or of text; without a head, the last states.

        attention_mask: [batch, pos], 1 or True at real tokens; padding may be on either side. With a cache it speaks of the
            new tokens only.
        token_types: [batch, pos], the segment of each token, in models with token-type embeddings; None means 0.
        documents: [batch, pos], a number per packed document: tokens see their own only, and positions start again in each.
        prefix: a number, or one per row: so many leading tokens see each other in both directions (prefix language model).
        visible: [batch or 1, head or 1, pos, pos], True where a query sees a key, in place of every layer's own mask.
        global_tokens: [batch, pos], True at tokens that see and are seen by all, in models that have them (Longformer).
        cache: a `KVCache` that holds, and then receives, the keys and values of the tokens before; no gradients then.
        start_at_layer: start from the residual stream before this block, given as `tokens`, [batch, pos, d_model].
        stop_at_layer: return the residual stream before this block; n_layers gives the one after the last. Negative counts
            from the end in both.
        return_type: "logits", "loss" (mean next-token cross-entropy in nats), "both" (logits, loss), or None.
        Raises InputError for tokens outside the vocabulary, an empty prompt, or one longer than n_ctx.
        """
        check_return_type(return_type, self.cfg)
        layers = self._layer_range(start_at_layer, stop_at_layer)
        given_resid, stops = start_at_layer is not None, stop_at_layer is not None
        if given_resid or stops:
            check_partial(return_type, cache, given_resid, stops)
            self._refuse_hooks_that_cannot_run(layers, embeds=not given_resid, unembeds=not stops)
        tokens = check_resid(tokens, self, layers.start) if given_resid else self._as_tokens(tokens, prepend_bos)
        info = token_info(
            tokens,
            self.cfg,
            cache,
            token_types=token_types,
            documents=documents,
            prefix=prefix,
            visible=visible,
            global_tokens=global_tokens,
        )
        with torch.set_grad_enabled(torch.is_grad_enabled() and cache is None):
            x, context = self._run_blocks(tokens, attention_mask, cache, layers, info)
            if stops:
                return x
            logits = self.unembed_resid(x)
            if return_type in ("loss", "both"):
                loss = next_token_loss(logits, tokens, context.real, info.documents)
                return loss if return_type == "loss" else (logits, loss)
            return logits if return_type == "logits" else None

    def next_token_logits(self, tokens: Tensor, *, attention_mask: Any = None, cache: KVCache | None = None) -> Tensor:
        """Logits after the last token only, [batch, d_vocab_out], as decoding needs them; arguments as in `forward`."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and cache is None):
            x, _ = self._run_blocks(tokens, attention_mask, cache, range(self.n_layers), TokenInfo())
            return self.unembed_resid(x[:, -1:])[:, 0]

    def _run_blocks(
        self, tokens: Tensor, attention_mask: Any, cache: KVCache | None, layers: range, info: TokenInfo
    ) -> tuple[Float[Tensor, "batch pos d_model"], AttentionContext]:
        """The residual stream after these blocks. A floating-point input is the stream before the first of them."""
        past = 0 if cache is None else check_cache(cache, tokens.shape, self.cfg)
        try:
            x, context = self._enter(tokens, attention_mask, cache, info)
            x = self.run_blocks(x, context, cache, layers)
        except BaseException:
            if cache is not None:
                cache.rewind(past)
            raise
        return x, context

    def _layer_range(self, start: int | None, stop: int | None) -> range:
        n = self.n_layers
        for name, value in (("start_at_layer", start), ("stop_at_layer", stop)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InputError(f"{name} must be a whole number or None, got {value!r}.")
        first = 0 if start is None else start + n if start < 0 else start
        last = n if stop is None else stop + n if stop < 0 else stop
        if not 0 <= first <= n or not 0 <= last <= n or first > last:
            raise InputError(f"start_at_layer={start} and stop_at_layer={stop} do not name a range of this model's {n} layers.")
        if self.streams is not None and not {first, last} <= {0, n}:
            raise InputError(
                f"start_at_layer and stop_at_layer must be 0 or {n} in this model, got {start} and {stop}: between its blocks "
                "there are several streams, of which [batch, pos, d_model] holds one; blocks.{l}.hook_streams_pre has them all."
            )
        return range(first, last)

    def _enter(
        self, tokens: Tensor, attention_mask: Any, cache: KVCache | None, info: TokenInfo
    ) -> tuple[Tensor, AttentionContext]:
        """The residual stream before the first block to run, and what all blocks know about its tokens."""
        given_resid = tokens.is_floating_point()
        if not given_resid:
            check_tokens(tokens, self.cfg, n_past=0 if cache is None else cache.length)
        real = check_mask(attention_mask, tokens.shape[:2], in_parts=cache is not None)
        positions = token_positions(tokens.shape[1], real, cache, tokens.device, info.documents)
        if cache is None:
            context = AttentionContext(self.cfg, positions, 0, real, info)
        else:
            context = AttentionContext(self.cfg, *cache.append_tokens(tokens.shape[0], positions, real), info)
        if given_resid:
            return tokens, context
        x = self.embed_tokens(tokens, positions, info.token_types)
        if self.cfg.d_layer_embed:
            context.shared[SHARED] = self.layer_embeddings(tokens, x)
        return x, context

    def generate(
        self, prompt: str | Sequence[Any] | Tensor, max_new_tokens: int = 20, **options: Any
    ) -> str | list[str] | Tensor:
        """Continue a prompt, greedily or by sampling; see `models.generate.generate` for the options."""
        from .generate import generate

        return generate(self, prompt, max_new_tokens, **options)

    def ungrouped(self) -> HookedTransformer:
        """The same function with one key/value head per query head; other weights are shared with this model, not copied."""
        from .ungroup import ungrouped

        return ungrouped(self)

    def save(self, folder: str | Path) -> None:
        """Write config, weights and tokeniser to a folder that `load_model` reads."""
        from .loading.own_format import save_model

        save_model(self, folder)

    @classmethod
    def from_transformer_lens(cls, state_dict: dict[str, Tensor], config_dict: dict[str, Any]) -> HookedTransformer:
        """Build from the state dict and config dict of a classic TransformerLens HookedTransformer."""
        from .loading.transformer_lens import from_transformer_lens

        return from_transformer_lens(state_dict, config_dict)

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Token embeddings."""
        return self.embed.weight

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """Unembedding, a view: resid @ W_U are logits."""
        return self.unembed.weight.T

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"] | None:
        """Learned positions; None where the model has none."""
        return self.pos_embed.weight if self.cfg.positions == "learned" else None


def token_positions(
    length: int,
    real: Bool[Tensor, "batch pos"] | None,
    cache: KVCache | None,
    device: torch.device,
    documents: Int[Tensor, "batch pos"] | None = None,
) -> Int[Tensor, "batch pos"]:
    """Positions that count real tokens only, continuing after those in the cache; padding gets the position of its neighbour.

    In each of several documents they start again.
    """
    if cache is not None and cache.real is not None:
        past = cache.real.sum(1, keepdim=True)
        real = torch.ones(past.shape[0], length, dtype=torch.bool, device=device) if real is None else real
    else:
        past = torch.full((1, 1), 0 if cache is None else cache.length, device=device)
    if documents is not None:
        same = (documents[:, :, None] == documents[:, None, :]).tril()
        same = same if real is None else same & real[:, None, :]
        return (same.sum(-1) - 1).clamp(min=0)
    if real is None:
        return past + torch.arange(length, device=device)[None]
    return past + (real.long().cumsum(1) - 1).clamp(min=0)


def next_token_loss(
    logits: Float[Tensor, "batch pos vocab"],
    tokens: Tokens,
    real: Bool[Tensor, "batch key"] | None = None,
    documents: Int[Tensor, "batch pos"] | None = None,
) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats of each token given those before it; pairs with padding, or of two documents, do not count."""
    if tokens.shape[1] < 2:
        raise InputError(
            f"a loss needs at least 2 tokens in a row, one to predict from and one to predict, got {tokens.shape[1]}."
        )
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none")
    if real is None and documents is None:
        return losses.mean()
    counted = torch.ones_like(tokens[:, 1:], dtype=torch.bool)
    if real is not None:
        counted = real[:, -tokens.shape[1] :][:, :-1] & real[:, -tokens.shape[1] :][:, 1:]
    if documents is not None:
        counted = counted & (documents[:, :-1] == documents[:, 1:])
    if not bool(counted.any()):
        raise InputError("a loss needs a token and the one after it in one row, real and of one document; there is no such pair.")
    return losses[counted.flatten()].mean()
