"""Hook points: named places in a forward pass where a tensor can be read, edited, or followed backward.

The vocabulary is the classic one of HookedTransformer; `AXES` is the one list of it, with the axes of every tensor.
A hook point that nothing hooks costs one attribute check.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import HookError, closest

AXES = {
    "hook_embed": "batch pos d_model",
    "hook_pos_embed": "batch pos d_model",
    "hook_token_type_embed": "batch pos d_model",
    "hook_streams_pre": "stream batch pos d_model",
    "altup.hook_predict": "batch pos stream stream",
    "hook_resid_pre": "batch pos d_model",
    "hook_q_input": "batch pos head d_model",
    "hook_k_input": "batch pos kv_head d_model",
    "hook_v_input": "batch pos kv_head d_model",
    "hook_mixer_in": "batch pos d_model",
    "hook_attn_out": "batch pos d_model",
    "hook_laurel_out": "batch pos d_model",
    "hook_cross_attn_out": "batch pos d_model",
    "hook_resid_cross": "batch pos d_model",
    "hook_resid_mid": "batch pos d_model",
    "hook_mlp_in": "batch pos d_model",
    "hook_mlp_out": "batch pos d_model",
    "hook_resid_late": "batch pos d_model",
    "altup.hook_correct": "batch pos stream",
    "hook_layer_embed": "batch pos d_layer_embed",
    "hook_layer_out": "batch pos d_model",
    "hook_resid_post": "batch pos d_model",
    "hook_streams_post": "stream batch pos d_model",
    "streams.hook_merged": "batch pos d_model",
    "hook_scale": "batch pos 1",
    "hook_normalized": "batch pos d_model",
    "attn.hook_q": "batch pos head d_head",
    "attn.hook_k": "batch pos kv_head d_head",
    "attn.hook_v": "batch pos kv_head d_value",
    "attn.hook_rot_q": "batch pos head d_head",
    "attn.hook_rot_k": "batch pos kv_head d_head",
    "attn.hook_alibi": "batch head query key",
    "attn.hook_t5_bias": "batch head query key",
    "attn.hook_q_global": "batch pos head d_head",
    "attn.hook_k_global": "batch pos head d_head",
    "attn.hook_v_global": "batch pos head d_value",
    "attn.hook_score_c2c": "batch head query key",
    "attn.hook_score_c2p": "batch head query key",
    "attn.hook_score_p2c": "batch head query key",
    "attn.hook_attn_scores": "batch head query key",
    "attn.hook_pattern": "batch head query key",
    "attn.hook_sink": "batch head query 1",
    "attn.hook_decay": "batch pos head d_decay",
    "attn.hook_beta": "batch pos head",
    "attn.hook_state": "batch pos head d_head d_state",
    "attn.hook_gate": "batch pos head d_value",
    "attn.hook_raw_scores": "batch head query key",
    "attn.hook_paired_scores": "batch map query key",
    "attn.hook_unmixed_pattern": "batch head query key",
    "attn.hook_lambda": "1",
    "attn.hook_mixed": "batch pos head d_value",
    "attn.hook_head_scale": "batch pos head 1",
    "attn.hook_effective_pattern": "batch head query key",
    "attn.hook_z": "batch pos head d_value",
    "attn.hook_result": "batch pos head d_model",
    "attn.hook_q_latent": "batch pos q_rank",
    "attn.hook_kv_latent": "batch pos kv_rank",
    "attn.hook_score_content": "batch head query key",
    "attn.hook_score_rotary": "batch head query key",
    "attn.hook_indexer_scores": "batch 1 query key",
    "attn.hook_block_scores": "batch head query block",
    "attn.hook_selection": "batch selector query key",
    "attn.hook_pattern_compressed": "batch head query block",
    "attn.hook_pattern_selected": "batch head query key",
    "attn.hook_pattern_window": "batch head query key",
    "attn.hook_gate_branches": "batch pos head branch",
    "mlp.hook_uncut": "batch pos d_mlp",
    "mlp.hook_pre": "batch pos d_mlp",
    "mlp.hook_pre_linear": "batch pos d_mlp",
    "mlp.hook_post": "batch pos d_mlp",
    "mlp.hook_router_logits": "batch pos expert",
    "mlp.hook_expert_weights": "batch pos expert",
    "mlp.hook_expert_pre": "batch pos expert d_expert",
    "mlp.hook_expert_pre_linear": "batch pos expert d_expert",
    "mlp.hook_expert_post": "batch pos expert d_expert",
    "mlp.hook_expert_out": "batch pos expert d_model",
    "mlp.shared.hook_pre": "batch pos d_shared",
    "mlp.shared.hook_pre_linear": "batch pos d_shared",
    "mlp.shared.hook_post": "batch pos d_shared",
    "mlp.hook_shared_gate": "batch pos 1",
    "mlp.hook_shared_out": "batch pos d_model",
}
"""Every hook and the axes of its tensor.

`hook_scale` is what the norm divides by; `hook_normalized` is what the norm hands on, gain and bias included.
`attn.hook_q` and `attn.hook_k` come before QK-norm, rotation and temperature, `hook_rot_q` and `hook_rot_k` after them.
`attn.hook_alibi` is what ALiBi adds to the scaled scores.
`attn.hook_attn_scores` is what the normaliser sees: scaled, biased, soft-capped, -inf where masked, which an edit cannot undo.
`attn.hook_score_c2c`, `_c2p` and `_p2c` are DeBERTa's scores, scaled: content to content, content to position, position to
content. `attn.hook_q_global`, `_k_global` and `_v_global` make the rows of Longformer's global tokens.
`attn.hook_sink` is what a learned sink takes of each row; the pattern shares out the rest.
In differential attention it has the axes of `attn.hook_paired_scores`, two maps for each head.
`attn.hook_mixed` is pattern @ v where something more happens to it before `hook_z`, which the output weights read.
Recurrent mixers: `attn.hook_decay` is the logarithm of what each token multiplies the state by before it writes, one number
per head or per dimension of its keys; `attn.hook_beta` how strongly it writes; `attn.hook_state` the state after it, of which
its query reads. `attn.hook_gate` multiplies what a head found, after its activation.
Latent attention: `attn.hook_q_latent` and `attn.hook_kv_latent` are what queries, and keys and values, are made of, after
their norms; `attn.hook_score_content` and `attn.hook_score_rotary` the scaled scores by each part of the key.
Selected attention: `attn.hook_selection` is 1 for a key that a query chose, one map for all heads, per group or per head;
`attn.hook_indexer_scores` and `attn.hook_block_scores` are what it chose by.
The `*_input` hooks, `hook_mixer_in` and `hook_mlp_in` come before the norm and reach one reader only, never the residual
stream. `mlp.hook_expert_weights` is 0 where a token does not go to an expert; `mlp.hook_expert_out` is weighted, so that its
sum and `mlp.hook_shared_out` are what the mixture writes.
`hook_layer_embed` is the token embedding that a layer has of its own, `hook_layer_out` what the block adds of it, and
`hook_resid_late` the stream before that. `hook_resid_cross` lies between self-attention and cross-attention, which has the hooks
of attention, its keys and values at the encoder's positions.
Blocks with several streams (AltUp): `hook_streams_pre` and `hook_streams_post` are all of them, as they come from the block
before and go to the next. `hook_resid_pre` is the active one as the block reads it, after the prediction, and `hook_resid_post`
as the block hands it on, after the correction; an edit of either is one of that stream. `hook_resid_late` is the active stream
after attention, LAuReL and MLP, before the correction, and `hook_layer_out` goes to every stream but the first.
`altup.hook_predict` [to, from] and `altup.hook_correct` are the coefficients of both; `hook_laurel_out` is what LAuReL adds:
the sum of it, the stream and `hook_attn_out`, divided by sqrt(2), is `hook_resid_mid`. `streams.hook_merged` is what the final
norm reads. `mlp.hook_uncut` are the gates of a sparse MLP before the cut, which `hook_pre` follows.
"""

EXPENSIVE = (
    *("hook_result", "hook_state", "hook_q_input", "hook_k_input", "hook_v_input", "hook_score_content", "hook_score_rotary"),
    *("hook_expert_pre", "hook_expert_pre_linear", "hook_expert_post", "hook_expert_out"),
)
"""Computed only while hooked by name or glob; `run_with_cache` without names leaves them out."""

HookFunction = Callable[..., Any]
Names = str | Iterable[str] | Callable[[str], bool] | None


@dataclass(eq=False)
class _Hook:
    """reads_only: it keeps a tensor and changes nothing. in_graph: what it was given must be what the model goes on with."""

    function: HookFunction
    reads_only: bool = False
    in_graph: bool = True


class HookPoint:
    """One named place in the forward pass. `name` is its full hook name, `layer` its block, None outside the blocks.

    read_only: its tensor is a view that the model does not go on with, so that an edit of it raises.
    """

    def __init__(self, kind: str, read_only: bool = False) -> None:
        self.kind, self.read_only = kind, read_only
        if kind not in AXES:
            raise HookError(
                f'a hook of the kind {kind!r} has no axes; state them first, as in AXES[{kind!r}] = "batch pos d_model".'
            )
        self.axes = AXES[kind]
        self.name = kind
        self.layer: int | None = None
        self.forward_hooks: list[_Hook] = []
        self.backward_hooks: list[_Hook] = []

    def __repr__(self) -> str:
        return f"HookPoint({self.name} [{self.axes}])"

    @property
    def is_hooked(self) -> bool:
        return bool(self.forward_hooks or self.backward_hooks)

    @property
    def is_edited(self) -> bool:
        """Whether a user's hook, not just a cache, is attached."""
        return any(not hook.reads_only for hook in self.forward_hooks) or bool(self.backward_hooks)

    @property
    def is_in_graph(self) -> bool:
        """Whether something attached edits this tensor, or wants gradients with respect to it."""
        return any(hook.in_graph for hook in self.forward_hooks) or bool(self.backward_hooks)

    def __deepcopy__(self, memo: dict[int, Any]) -> HookPoint:
        """A copy of a model has its own hook points, with nothing attached."""
        copy = HookPoint(self.kind, self.read_only)
        copy.name, copy.layer = self.name, self.layer
        return copy

    def __call__(self, tensor: Tensor) -> Tensor:
        if not self.forward_hooks and not self.backward_hooks:
            return tensor
        for hook in tuple(self.forward_hooks):
            if hook.in_graph:
                tensor = self._edit(tensor, hook.function)
            else:
                hook.function(tensor, self)
        return self._follow_backward(tensor) if self.backward_hooks else tensor

    def _edit(self, tensor: Tensor, function: HookFunction) -> Tensor:
        # The hook gets its own copy: in-place edits then reach neither caches, nor the autograd graph, nor other readers.
        edited = tensor.clone()
        returned = function(edited, self)
        result = self._checked(edited if returned is None else returned, tensor)
        if self.read_only and not torch.equal(result.nan_to_num(), tensor.nan_to_num()):
            raise HookError(f"'{self.name}' shows what other tensors amount to and cannot be edited; edit those.")
        return result

    def _checked(self, returned: object, wanted: Tensor) -> Tensor:
        if not isinstance(returned, Tensor):
            raise HookError(f"hook on '{self.name}' returned {type(returned).__name__}; return a tensor or None.")
        if returned.shape != wanted.shape:
            raise HookError(
                f"hook on '{self.name}' returned shape {tuple(returned.shape)}, wanted {tuple(wanted.shape)} [{self.axes}]."
            )
        return returned.to(dtype=wanted.dtype, device=wanted.device)

    def _follow_backward(self, tensor: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            raise HookError(
                f"backward hook on '{self.name}' needs gradients, but they are off: under torch.no_grad(), or with a cache."
            )
        # A view is a node of its own, so the hook sees the gradient at this place and not of a tensor shared with others.
        tensor = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
        for hook in self.backward_hooks:
            tensor.register_hook(self._backward(hook.function))
        return tensor

    def _backward(self, function: HookFunction) -> Callable[[Tensor], Tensor]:
        def run(gradient: Tensor) -> Tensor:
            return self._edit(gradient, function)

        return run


def hooked_scores(point: HookPoint, scores: Tensor) -> Tensor:
    """Scores, hooked. What is -inf stays so: an edit may weigh the keys that a query sees, but not show it a hidden one."""
    edited = point(scores)
    return edited if edited is scores else edited.masked_fill(scores == float("-inf"), float("-inf"))


class ActivationCache(Mapping[str, Tensor]):
    """Activations of one run by hook name, in the order they were computed.

    `cache["blocks.0.attn.hook_pattern"]`, `cache["pattern", 0]`, `cache["resid_post", -1]` and `cache["scale", 0, "ln1"]`
    name tensors; `cache["embed"]` names one outside the blocks.
    """

    def __init__(self, activations: Mapping[str, Tensor], n_layers: int) -> None:
        self._activations = dict(activations)
        self.n_layers = n_layers

    def __getitem__(self, key: str | tuple[Any, ...]) -> Tensor:
        if not isinstance(_as_tuple(key)[0], str):
            raise KeyError(f"a cache is read by hook name, or by short name and layer as in cache['pattern', 0]; got {key!r}.")
        name = key if isinstance(key, str) and key in self._activations else act_name(*_as_tuple(key), n_layers=self.n_layers)
        if name not in self._activations:
            raise KeyError(f"cache has no '{name}'{closest(name, self._activations)}; it holds {len(self)} activations.")
        return self._activations[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._activations)

    def __len__(self) -> int:
        return len(self._activations)

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[index]
        except (KeyError, TypeError):
            return False
        return True

    def __repr__(self) -> str:
        total = sum(tensor.numel() * tensor.element_size() for tensor in self.values())
        return f"ActivationCache({len(self)} activations, {total / 2**20:.1f} MiB)"

    def to(self, *args: Any, **kwargs: Any) -> ActivationCache:
        """A cache with every tensor moved or cast, as `Tensor.to`."""
        return ActivationCache({name: tensor.to(*args, **kwargs) for name, tensor in self.items()}, self.n_layers)


_ALIASES = {
    "attn": "pattern",
    "attn_logits": "attn_scores",
    "query": "q",
    "key": "k",
    "value": "v",
    "mlp_pre": "pre",
    "mlp_post": "post",
}
_OUTSIDE = ("embed", "pos_embed")


def act_name(short: str, layer: int | str | None = None, where: str | None = None, *, n_layers: int | None = None) -> str:
    """Full hook name of a short one: ("pattern", 3) is "blocks.3.attn.hook_pattern"; full names pass unchanged.

    `where` names a norm, as in ("scale", 0, "ln1"); ("scale", "ln_final") is the final norm's. A negative layer counts
    from the end when n_layers is given.
    """
    if "hook_" in short and layer is None:
        return short
    kind = _ALIASES.get(short, short).removeprefix("hook_")
    if isinstance(layer, str):
        return f"{layer}.hook_{kind}"
    if layer is None:
        return f"hook_{kind}" if kind in _OUTSIDE else f"ln_final.hook_{kind}"
    if layer < 0 and n_layers is not None:
        layer += n_layers
    if where is None:
        where = next((part for part in ("attn", "mlp") if f"{part}.hook_{kind}" in AXES), None)
    return f"blocks.{layer}.{where}.hook_{kind}" if where else f"blocks.{layer}.hook_{kind}"


def _as_tuple(key: str | tuple[Any, ...]) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def select_names(names: Names, available: Iterable[str]) -> list[str]:
    """The hook names that a string, glob, list of them, or predicate selects, in the order of `available`.

    None selects all but the expensive ones. Raises HookError on a name or glob that matches nothing.
    """
    available = list(available)
    if names is None:
        return [name for name in available if not name.endswith(EXPENSIVE)]
    if callable(names):
        chosen = {name for name in available if names(name)}
        if not chosen:
            raise HookError(f"names selects none of the {len(available)} hooks; they are listed in model.hook_names.")
    else:
        if not isinstance(names, Iterable):
            raise HookError(f"names must be a hook name, a glob, a list of them, a predicate or None, got {names!r}.")
        chosen = {match for name in ([names] if isinstance(names, str) else names) for match in _matches(name, available)}
    return [name for name in available if name in chosen]


def _matches(name: str, available: list[str]) -> list[str]:
    if not isinstance(name, str):
        raise HookError(f"a hook name must be a string, got {name!r}; `act_name` makes one from a short name and a layer.")
    if name in available:
        return [name]
    found = fnmatch.filter(available, name) if any(char in name for char in "*?[") else []
    if not found:
        raise HookError(f"no hook is called '{name}'{closest(name, available)}; all are listed in model.hook_names.")
    return found
