"""Text in, text out, and the checks on what goes into a model. Everything also works from token ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from .cache import KVCache
from .config import TransformerConfig
from .errors import InputError
from .positions.rotary import cacheable_length

if TYPE_CHECKING:
    from .loading.tokenizer import Tokenizer


class Text:
    """Tokenising and detokenising for a model with a `tokenizer` and a `cfg`."""

    cfg: TransformerConfig
    tokenizer: Any

    def _need_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("this model has no tokeniser; pass token ids, [batch, pos], instead of text.")
        return self.tokenizer

    def to_tokens(self, text: str | Sequence[str], prepend_bos: bool | None = None) -> Int[Tensor, "batch pos"]:
        """Token ids of one text, or of several of equal token length, [batch, pos].

        prepend_bos: None follows `cfg.default_prepend_bos`, which is what the model's own tokeniser does.
        """
        tokenizer = self._need_tokenizer()
        bos = self.cfg.default_prepend_bos if prepend_bos is None else prepend_bos
        texts = [text] if isinstance(text, str) else list(text)
        rows = [tokenizer.encode(each, prepend_bos=bos) for each in texts]
        if not rows:
            raise InputError("the list of texts is empty; give at least one.")
        for index, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise InputError(
                    f"text {index} has {len(row)} tokens and text 0 has {len(rows[0])}; pad the ids and give attention_mask."
                )
        return torch.tensor(rows, dtype=torch.long, device=next(self.parameters()).device)  # type: ignore[attr-defined]

    def to_string(self, tokens: Tensor | Sequence[int]) -> str:
        """Text of one sequence of token ids, [pos]."""
        return self._need_tokenizer().decode(_ids(tokens))

    def to_str_tokens(self, tokens: str | Tensor | Sequence[int], prepend_bos: bool | None = None) -> list[str]:
        """The string of each token of one sequence, or of a text."""
        ids = self.to_tokens(tokens, prepend_bos)[0].tolist() if isinstance(tokens, str) else _ids(tokens)
        return [self._need_tokenizer().token_string(index) for index in ids]

    def to_single_token(self, text: str) -> int:
        """The id of a text that is exactly one token. Raises InputError, with the pieces, where it is not."""
        ids = self._need_tokenizer().encode(text, prepend_bos=False)
        if len(ids) != 1:
            pieces = [self._need_tokenizer().token_string(index) for index in ids]
            raise InputError(f"{text!r} is {len(ids)} tokens, {pieces}, where one is needed.")
        return ids[0]

    def _as_tokens(self, tokens: str | Sequence[Any] | Tensor, prepend_bos: bool | None) -> Tensor:
        if isinstance(tokens, str) or (isinstance(tokens, Sequence) and tokens and isinstance(tokens[0], str)):
            return self.to_tokens(tokens, prepend_bos)
        if prepend_bos is not None:
            raise InputError("prepend_bos applies to text; token ids are taken as they are.")
        if not isinstance(tokens, Tensor):
            try:
                tokens = torch.tensor(tokens, dtype=torch.long)
            except (TypeError, ValueError):
                raise InputError(
                    f"tokens must be text, a tensor of ids, or lists of equal length, got {type(tokens).__name__}."
                ) from None
        return tokens[None] if tokens.dim() == 1 else tokens


def _ids(tokens: Tensor | Sequence[int]) -> list[int]:
    if isinstance(tokens, Tensor):
        if tokens.dim() == 2 and tokens.shape[0] == 1:
            tokens = tokens[0]
        if tokens.dim() != 1:
            raise InputError(f"one sequence of ids [pos] is wanted, got shape {tuple(tokens.shape)}; take one row.")
        return tokens.tolist()
    return list(tokens)


def check_tokens(tokens: Tensor, cfg: TransformerConfig, n_past: int = 0) -> None:
    """Raise InputError where tokens are not ids [batch, pos] of this vocabulary, or too many for the context."""
    if tokens.dim() != 2:
        raise InputError(f"tokens must be [batch, pos], got shape {tuple(tokens.shape)}.")
    if tokens.is_floating_point() or tokens.dtype == torch.bool or tokens.is_complex():
        raise InputError(f"tokens must be whole numbers, got {tokens.dtype}; a residual stream needs start_at_layer.")
    if tokens.numel() == 0:
        raise InputError(f"the prompt is empty, shape {tuple(tokens.shape)}; give at least one token.")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= cfg.d_vocab:
        raise InputError(f"token id {low if low < 0 else high} is outside the vocabulary, 0 to {cfg.d_vocab - 1}.")
    total = n_past + tokens.shape[1]
    if total > cfg.n_ctx:
        raise InputError(
            f"the prompt has {total} tokens, more than the context of {cfg.n_ctx}; shorten it or load with a larger n_ctx."
        )


def check_resid(resid: Tensor, cfg: TransformerConfig, layer: int) -> None:
    """Raise InputError where this is not a residual stream [batch, pos, d_model] to start a layer from."""
    if resid.dim() != 3 or resid.shape[-1] != cfg.d_model or resid.numel() == 0:
        raise InputError(
            f"start_at_layer={layer} needs a residual stream [batch, pos, {cfg.d_model}], got shape {tuple(resid.shape)}."
        )


def check_cache(cache: KVCache, shape: torch.Size, cfg: TransformerConfig) -> None:
    """Raise InputError where this cache cannot take these tokens: another batch size, or positions that make the past stale."""
    if cache.positions is not None and cache.positions.shape[0] not in (1, shape[0]):
        raise InputError(f"tokens have {shape[0]} rows, but the cache holds {cache.positions.shape[0]}; use a new KVCache.")
    if (total := cache.length + shape[1]) > (limit := cacheable_length(cfg)):
        raise InputError(
            f"{total} tokens exceed the {limit} for which a cache stays right: dynamic rotary scaling then changes every earlier "
            "key; call without a cache."
        )


def check_mask(mask: Tensor | None, shape: torch.Size) -> Bool[Tensor, "batch pos"] | None:
    """The padding mask as bool, None where nothing is padded. Raises InputError on a wrong shape, values, or a hole."""
    if mask is None:
        return None
    if mask.shape != shape:
        raise InputError(f"attention_mask has shape {tuple(mask.shape)}, wanted {tuple(shape)}, as the tokens.")
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError("attention_mask must hold 1 (or True) at real tokens and 0 (or False) at padding.")
    real = mask.bool()
    if bool(real.all()):
        return None
    if not bool(real.any(1).all()):
        raise InputError(f"row {int((~real.any(1)).nonzero()[0])} of attention_mask is all padding; drop the row.")
    return real
