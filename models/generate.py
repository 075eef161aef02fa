"""Continuing a prompt: greedy or sampled decoding with a key/value cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .cache import KVCache
from .errors import InputError
from .positions.rotary import stale_cache
from .text import check_head, check_mask, check_tokens

if TYPE_CHECKING:
    from .encoder_decoder import Target
    from .transformer import HookedTransformer


@torch.no_grad()
def generate(
    model: HookedTransformer | Target,
    prompt: str | Sequence[Any] | Tensor,
    max_new_tokens: int = 20,
    *,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    attention_mask: Tensor | None = None,
    use_cache: bool = True,
    stop_at_eos: bool = False,
    prepend_bos: bool | None = None,
) -> str | list[str] | Tensor:
    """Append `max_new_tokens` tokens to a prompt; text in gives text out (a list for a list), ids [batch, pos]
    give ids [batch, pos + new].

    do_sample: draw from softmax(logits / temperature), kept to the `top_k` likeliest tokens and to the smallest set whose
        probability reaches `top_p` (Holtzman et al. 2019, arXiv 1904.09751); otherwise take the likeliest token.
    seed: of the draw's own generator; the global one is left alone.
    attention_mask: [batch, pos], 1 at real tokens. Padding must be on the left, so that new tokens follow real ones.
    use_cache: compute each token once; bidirectional models, and `dynamic` or `longrope` positions that outgrow their trained
        length, make the past stale and recompute it regardless.
    stop_at_eos: end when every row has produced one of `cfg.eos_token_ids`; a finished row repeats its own.
    Raises InputError where prompt and new tokens together exceed n_ctx.
    """
    check_head(model.cfg, "generate")
    _check_sampling(max_new_tokens, temperature, top_k, top_p)
    tokens = model._as_tokens(prompt, prepend_bos)
    check_tokens(tokens, model.cfg, n_past=max_new_tokens)
    real = check_mask(attention_mask, tokens.shape)
    if real is not None and not bool(real[:, -1].all()):
        raise InputError("attention_mask pads the end of a prompt; generation needs padding on the left.")
    generator = torch.Generator(device=tokens.device).manual_seed(seed)
    past = tokens.shape[1] if real is None else int(real.sum(1).max())
    stays_right = model.cfg.causal and stale_cache(model.cfg, past, past + max_new_tokens) is None
    cache = KVCache(model.cfg) if use_cache and stays_right else None
    new, mask, finished = tokens, real, torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        logits = model.next_token_logits(new, attention_mask=mask, cache=cache)
        choice = sample(logits / temperature, generator, top_k, top_p) if do_sample else logits.argmax(-1)
        choice = torch.where(finished, tokens[:, -1], choice)
        tokens = torch.cat((tokens, choice[:, None]), 1)
        if stop_at_eos and model.cfg.eos_token_ids:
            finished |= torch.isin(choice, torch.tensor(model.cfg.eos_token_ids, device=tokens.device))
            if bool(finished.all()):
                break
        if cache is not None:
            new, mask = choice[:, None], None
        else:
            new = tokens
            mask = None if mask is None else torch.cat((mask, mask.new_ones(len(mask), 1)), 1)
    return model._as_given(prompt, tokens)


def sample(
    logits: Float[Tensor, "batch vocab"], generator: torch.Generator, top_k: int | None = None, top_p: float | None = None
) -> Int[Tensor, " batch"]:
    """Draw one token per row from softmax(logits), after top-k and nucleus filtering."""
    values, order = logits.float().sort(-1, descending=True)
    probabilities = values.softmax(-1)
    dropped = torch.zeros_like(values, dtype=torch.bool)
    if top_k is not None:
        dropped[:, top_k:] = True
    if top_p is not None:
        # A token stays while the mass before it is below top_p, so the likeliest always does.
        dropped |= probabilities.cumsum(-1) - probabilities >= top_p
    kept = probabilities.masked_fill(dropped, 0.0)
    return order.gather(-1, torch.multinomial(kept, 1, generator=generator))[:, 0]


def _check_sampling(max_new_tokens: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    for name, value in (("max_new_tokens", max_new_tokens), ("top_k", top_k)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise InputError(f"{name} must be a whole number, got {value!r}.")
    if max_new_tokens < 1:
        raise InputError(f"max_new_tokens must be at least 1, got {max_new_tokens}.")
    if not temperature > 0:
        raise InputError(f"temperature must be positive, got {temperature}; do_sample=False is greedy.")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k must be at least 1, got {top_k}.")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p must be in (0, 1], got {top_p}.")
