"""Text in, text out, and the checks on what goes into a model. Everything also works from token ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cache import KVCache
from .config import TransformerConfig
from .errors import InputError
from .positions.rotary import stale_cache
from .small_tokenizers import SmallTokenizer

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

        prepend_bos: None follows `cfg.default_prepend_bos`, which is what the model's own tokeniser does, and `adds_bos` of a
            small tokeniser.
        """
        tokenizer = self._need_tokenizer()
        by_default = self.cfg.default_prepend_bos or (isinstance(tokenizer, SmallTokenizer) and tokenizer.adds_bos)
        bos = by_default if prepend_bos is None else prepend_bos
        texts = [text] if isinstance(text, str) else list(text) if isinstance(text, Sequence) else [text]
        if not all(isinstance(each, str) for each in texts):
            raise InputError(f"text must be a string or a list of them, got {text!r}.")
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

    def _as_tokens(self, tokens: Any, prepend_bos: bool | None) -> Tensor:
        if is_text(tokens):
            return self.to_tokens(tokens, prepend_bos)
        if prepend_bos is not None:
            raise InputError("prepend_bos applies to text; token ids are taken as they are.")
        if not isinstance(tokens, Tensor):
            try:
                tokens = torch.as_tensor(tokens)
            except (TypeError, ValueError, RuntimeError, OverflowError):
                raise InputError(
                    f"tokens must be text, a tensor of ids, or lists of equal length, got {type(tokens).__name__}."
                ) from None
        if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
            raise InputError(f"tokens must be whole numbers, got {tokens.dtype}; a residual stream needs start_at_layer.")
        return (tokens[None] if tokens.dim() == 1 else tokens).long()

    def _as_given(self, prompt: Any, tokens: Tensor) -> str | list[str] | Tensor:
        """Ids [batch, pos] in the form of the prompt: a text for a text, texts for texts, otherwise as they are."""
        if isinstance(prompt, str):
            return self.to_string(tokens[0])
        return [self.to_string(row) for row in tokens] if is_text(prompt) else tokens


def is_text(tokens: Any) -> bool:
    """Whether these are a text or several."""
    return isinstance(tokens, str) or (isinstance(tokens, Sequence) and len(tokens) > 0 and isinstance(tokens[0], str))


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
    if tokens.numel() == 0:
        raise InputError(f"the prompt is empty, shape {tuple(tokens.shape)}; give at least one token.")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= cfg.d_vocab:
        raise InputError(f"token id {low if low < 0 else high} is outside the vocabulary, 0 to {cfg.d_vocab - 1}.")
    if (total := n_past + tokens.shape[1]) > cfg.n_ctx:
        what = f"the prompt has {total} tokens" if not n_past else f"{tokens.shape[1]} and {n_past} tokens make {total}"
        raise InputError(f"{what}, more than the context of {cfg.n_ctx}; shorten it or load with a larger n_ctx.")


def check_resid(resid: object, model: Any, layer: int) -> Float[Tensor, "batch pos d_model"]:
    """The residual stream to start a layer from. Raises InputError where its width, dtype or length is not the model's."""
    cfg, dtype = model.cfg, model.embed.weight.dtype
    if (
        not isinstance(resid, Tensor)
        or resid.dim() != 3
        or resid.shape[-1] != cfg.d_model
        or resid.dtype != dtype
        or not len(resid)
    ):
        got = f"{tuple(resid.shape)} {resid.dtype}" if isinstance(resid, Tensor) else type(resid).__name__
        raise InputError(f"start_at_layer={layer} needs a residual stream [batch, pos, {cfg.d_model}] of {dtype}, got {got}.")
    if not 0 < resid.shape[1] <= cfg.n_ctx:
        raise InputError(f"the residual stream has {resid.shape[1]} positions; this model takes 1 to {cfg.n_ctx}.")
    return resid


def check_head(cfg: TransformerConfig, what: str) -> None:
    """Raise InputError where `what` needs logits and the model has none."""
    if cfg.head == "none":
        raise InputError(f"{what} needs logits, and this model has no head: it returns its last states.")


def check_return_type(return_type: object, cfg: TransformerConfig) -> None:
    """Raise InputError where a model cannot return this."""
    if return_type not in ("logits", "loss", "both", None):
        raise InputError(f"return_type must be 'logits', 'loss', 'both' or None, got {return_type!r}.")
    if return_type in ("loss", "both"):
        check_head(cfg, f"return_type={return_type!r}")


def check_partial(return_type: str | None, cache: object, given_resid: bool, stops: bool) -> None:
    """Raise InputError for what a run of some layers only cannot give: a loss, or a cache that stays whole."""
    if return_type in ("loss", "both"):
        missing = "tokens" if given_resid else "logits"
        raise InputError(
            f"return_type={return_type!r} needs the whole model; with start_at_layer or stop_at_layer there are no {missing}."
        )
    if cache is not None:
        raise InputError("a cache needs the keys of every layer; leave out start_at_layer and stop_at_layer, or the cache.")


def check_cache(cache: object, shape: torch.Size, cfg: TransformerConfig) -> int:
    """How many tokens the cache holds. Raises InputError where it cannot take these tokens or could not stay right."""
    if not isinstance(cache, KVCache):
        raise InputError(f"cache must be a KVCache, as models.KVCache(model.cfg) makes, got {type(cache).__name__}.")
    if cache.cfg != cfg:
        raise InputError("the cache was made for another model; use KVCache(model.cfg).")
    if cache.batch not in (None, shape[0]):
        raise InputError(f"tokens have {shape[0]} rows, but the cache holds {cache.batch}; use a new KVCache.")
    if not cfg.causal:
        raise InputError("a bidirectional model cannot use a cache: new tokens change the states of the old ones.")
    past = 0 if cache.positions is None else int(cache.positions.max()) + 1
    total = past + shape[1]
    if rotary := stale_cache(cfg, past, total):
        raise InputError(
            f"{total} tokens exceed the {rotary.original_n_ctx} for which a cache stays right: {rotary.scaling} rotary scaling "
            "then changes every earlier key; call without a cache."
        )
    return cache.length


def check_mask(
    mask: Any, shape: torch.Size, name: str = "attention_mask", in_parts: bool = False
) -> Bool[Tensor, "batch pos"] | None:
    """The padding mask as bool, None where nothing is padded. Raises InputError on a wrong shape or wrong values.

    in_parts: the tokens are a part of longer rows, those of a cache, so that a row may be all padding here.
    """
    if mask is None:
        return None
    try:
        mask = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must be a tensor or nested lists of 1 and 0, got {type(mask).__name__}.") from None
    mask = mask[None] if mask.dim() == 1 and shape[0] == 1 else mask
    if mask.shape != shape:
        raise InputError(f"{name} has shape {tuple(mask.shape)}, wanted {tuple(shape)}, as the tokens.")
    if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError(f"{name} must hold 1 (or True) at real tokens and 0 (or False) at padding.")
    real = mask.bool()
    if bool(real.all()):
        return None
    if not in_parts and not bool(real.any(1).all()):
        raise InputError(f"row {int((~real.any(1)).nonzero()[0])} of {name} is all padding; drop the row.")
    return real
