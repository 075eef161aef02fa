"""What the weights alone say a head does: the eigenvalues of its OV circuit (does it copy?) and composition between heads.

Row-vector convention: x W_V W_O is what a head writes, x W_Q W_K^T x'^T what it scores. Everything is computed from d_head x
d_head factors, never from a vocabulary-sized product per head. Norm gains are folded into the weights they scale and LayerNorm's
centring too; the division by the norm's scale, a positive number per token, cannot be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import WeightsError
from .layers import n_heads_of

Factor = Float[Tensor, "head d_model d_head"]


@dataclass(frozen=True)
class HeadWeights:
    """One layer's heads, each with its own query, key, value and output weights: grouped key/value heads are repeated."""

    W_Q: Float[Tensor, "head d_model d_head"]
    W_K: Float[Tensor, "head d_model d_head"]
    W_V: Float[Tensor, "head d_model d_head"]
    W_O: Float[Tensor, "head d_head d_model"]


@dataclass(frozen=True)
class NormFold:
    """The linear part of a norm, `x -> (x - mean x) * gain`, the mean only where the norm removes it."""

    gain: Float[Tensor, " d_model"] | None = None
    centred: bool = False

    def before(self, weight: Float[Tensor, "*axes d_model out"]) -> Float[Tensor, "*axes d_model out"]:
        """Weights that give, on the stream itself, what `weight` gives on the normed stream."""
        weight = weight if self.gain is None else self.gain[:, None] * weight
        return weight - weight.mean(-2, keepdim=True) if self.centred else weight

    def after(self, weight: Float[Tensor, "*axes d_model"]) -> Float[Tensor, "*axes d_model"]:
        """What the norm makes of rows that are written to the stream."""
        weight = weight - weight.mean(-1, keepdim=True) if self.centred else weight
        return weight if self.gain is None else weight * self.gain


def norm_fold(model: Any, norm: Any) -> NormFold:
    """The linear part of one of a model's norms; nothing to fold for None or a norm without gain."""
    kind = _norm_kind(model.cfg)
    weight = getattr(norm, "weight", None)
    if norm is None or kind == "none" or (weight is None and not hasattr(norm, "hook_scale")):
        return NormFold()
    if weight is not None:
        weight = weight.detach().float()
        weight = 1 + weight if kind == "rms_norm_offset" else weight
    return NormFold(weight, kind == "layer_norm")


def _norm_kind(cfg: Any) -> str:
    """Our name for the norm of a config, also of a TransformerLens one."""
    if (kind := getattr(cfg, "norm", None)) is not None:
        return str(kind)
    named = str(getattr(cfg, "normalization_type", None) or "none")
    if named.startswith("RMS"):
        return "rms_norm_offset" if getattr(cfg, "rmsnorm_uses_offset", False) else "rms_norm"
    return "layer_norm" if named.startswith("LN") else "none"


def head_weights(model: Any, layer: int) -> HeadWeights:
    """Weights of one layer's heads in float32, norm gains folded in, key/value heads repeated for the query heads they serve.

    Raises WeightsError for a model that does not show `blocks[layer].attn.W_Q` and its like.
    """
    W_O, read = output_weights(model, layer), _read_fold(model, layer)
    W_Q, W_K, W_V = (_attention_weight(model, layer, name) for name in ("W_Q", "W_K", "W_V"))
    attention = model.blocks[layer].attn
    W_Q = _with_qk_gain(W_Q, getattr(attention, "q_norm", None))
    W_K = _with_qk_gain(W_K, getattr(attention, "k_norm", None))
    W_Q, W_K, W_V = (read.before(expand_groups(weight, len(W_O))) for weight in (W_Q, W_K, W_V))
    return HeadWeights(W_Q, W_K, W_V, W_O)


def value_weights(model: Any, layer: int) -> Float[Tensor, "head d_model d_head"]:
    """W_V of one layer's heads in float32, folded and repeated as in `head_weights`."""
    n_heads = len(_attention_weight(model, layer, "W_O"))
    return _read_fold(model, layer).before(expand_groups(_attention_weight(model, layer, "W_V"), n_heads))


def _read_fold(model: Any, layer: int) -> NormFold:
    """What stands between the stream and a layer's heads. In some orders nothing does: their ln1 comes after the attention."""
    is_read_as_it_is = getattr(model.cfg, "block", "pre") in ("post", "output_norm")
    return NormFold() if is_read_as_it_is else norm_fold(model, getattr(model.blocks[layer], "ln1", None))


def output_weights(model: Any, layer: int) -> Float[Tensor, "head d_head d_model"]:
    """W_O of one layer's heads in float32, with the gain of the norm after attention, and the block's scale, where there are."""
    after = norm_fold(model, getattr(model.blocks[layer], "ln1_post", None)) if hasattr(model, "blocks") else NormFold()
    return after.after(_attention_weight(model, layer, "W_O")) * getattr(model.cfg, "residual_scale", 1.0)


def _attention_weight(model: Any, layer: int, name: str) -> Tensor:
    try:
        return getattr(model.blocks[layer].attn, name).detach().float()
    except (AttributeError, IndexError, KeyError) as error:
        raise WeightsError(f"the model does not show its weights as blocks[{layer}].attn.{name}: {error}.") from None


def _with_qk_gain(weight: Factor, norm: Any) -> Factor:
    """Fold the gain of a QK-norm, [d_head] or one per head; its division by each query's or key's own length stays out."""
    gain = getattr(norm, "gain", None)
    return weight if gain is None else weight * gain.detach().float().reshape(-1, 1, weight.shape[-1])


def expand_groups(weight: Float[Tensor, "kv_head rows cols"], n_heads: int) -> Float[Tensor, "head rows cols"]:
    """Repeat each key/value head for the query heads that share it: head h reads KV head h // (n_heads / n_kv_heads)."""
    return weight.repeat_interleave(n_heads // len(weight), dim=0)


# Copying -------------------------------------------------------------------------------------------------------------


def eigenvalue_copying(matrix: Float[Tensor, "*axes n n"]) -> Float[Tensor, "*axes"]:
    """sum(lambda) / sum|lambda| of the eigenvalues, in [-1, 1] (Elhage et al. 2021): 1 if all are positive, as for a matrix
    that raises what it reads; about 0 for a random one; NaN for one without non-zero eigenvalues.

    Eigenvectors need not be orthogonal, so 1 does not promise that each token raises its own logit: see `top_k_copying`.
    """
    values = torch.linalg.eigvals(matrix)
    return values.real.sum(-1) / values.abs().sum(-1)


def ov_copying(
    W_E: Float[Tensor, "d_vocab d_model"],
    W_V: Float[Tensor, "head d_model d_head"],
    W_O: Float[Tensor, "head d_head d_model"],
    W_U: Float[Tensor, "d_model d_vocab"],
) -> Float[Tensor, " head"]:
    """`eigenvalue_copying` of W_E W_V W_O W_U per head, from W_O W_U W_E W_V, which has the same non-zero eigenvalues."""
    return eigenvalue_copying(W_O @ (W_U @ W_E) @ W_V)


def top_k_copying(ov_logits: Float[Tensor, "token d_vocab"], own: Int[Tensor, " token"], k: int = 1) -> float:
    """Share of tokens whose own logit is among the k largest that they write through an OV circuit.

    `ov_logits` are rows of W_E W_V W_O W_U for the tokens `own`.
    """
    own_logit = ov_logits.gather(1, own[:, None])
    return float(((ov_logits > own_logit).sum(1) < k).float().mean())


def ov_logits(model: Any, layer: int, head: int, tokens: Int[Tensor, " token"]) -> Float[Tensor, "token d_vocab"]:
    """What a head would add to all logits if it attended each of these tokens, up to the scales of the norms it passes.

    Uses the bare embedding. Where a first MLP rewrites it before any attention matters, as in GPT-2, this says little.
    """
    weights = head_weights(model, layer)
    W_O = norm_fold(model, getattr(model, "ln_final", None)).after(weights.W_O[head])
    return model.W_E.detach()[tokens].float() @ weights.W_V[head] @ W_O @ model.W_U.detach().float()


def copying_scores(model: Any, layers: tuple[int, ...] | None = None) -> Float[Tensor, "layer head"]:
    """`ov_copying` of every head in these layers (default all), gains of ln1, ln1_post and the final norm folded in.

    The embedding is the bare W_E: models that rewrite it in their first MLP hide their copying from this score. NaN where the
    output vocabulary is not the input vocabulary, and for heads that a layer lacks. What lies between the values and W_V, or
    between the pattern and W_O, such as a convolution or a gate, is not counted. Raises WeightsError for a model, or for a
    layer, that does not show its weights.
    """
    chosen = tuple(range(model.cfg.n_layers)) if layers is None else layers
    W_E, W_U = vocabulary_weights(model)
    table = torch.full((len(chosen), max(n_heads_of(model, layer) for layer in chosen)), math.nan)
    if len(W_E) != W_U.shape[1]:
        return table
    bridge = (W_U @ W_E).cpu()
    final = norm_fold(model, getattr(model, "ln_final", None))
    for row, layer in zip(table, chosen, strict=True):
        copying = eigenvalue_copying(final.after(output_weights(model, layer)).cpu() @ bridge @ value_weights(model, layer).cpu())
        row[: len(copying)] = copying
    return table


def vocabulary_weights(model: Any) -> tuple[Float[Tensor, "d_vocab d_model"], Float[Tensor, "d_model d_vocab_out"]]:
    """Embedding and unembedding in float32. Raises WeightsError for a model that does not show them."""
    try:
        return model.W_E.detach().float(), model.W_U.detach().float()
    except AttributeError as error:
        raise WeightsError(f"the model does not show its embedding and unembedding as W_E and W_U: {error}.") from None
