"""Running a module with hooks: finding its hook points, attaching to them for one call, caching what they see."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from .errors import HookError
from .hooks import ActivationCache, HookFunction, HookPoint, Names, _Hook, select_names

HookList = Sequence[Any]
"""Pairs (names, function)."""

IN_BLOCK = re.compile(r"^(.*?)blocks\.(\d+)\.(.*)$")
"""What comes before a block in a name (the stack, in encoder-decoders), the block's number, what comes after."""


class Part(nn.Module):
    """A piece of a layer whose hooks are named as the layer's own: `blocks.0.attn.hook_sink`, wherever the piece sits in it."""

    shared_parameters: tuple[str, ...] = ()
    """Parameters that the same piece of later layers uses too, in place of its own."""

    @property
    def hook_points(self) -> list[HookPoint]:
        """Its own hooks."""
        return [value for value in vars(self).values() if isinstance(value, HookPoint)]

    @property
    def is_hooked(self) -> bool:
        """Whether anything reads or edits one of its hooks."""
        return any(point.is_hooked for point in self.hook_points)


class HookedModule(nn.Module):
    """A module whose `HookPoint` attributes, and those of its submodules, can be hooked by name."""

    n_layers: int

    def _name_hook_points(self) -> None:
        """Give every hook point its full name; called once, at the end of construction."""
        self._hook_points: dict[str, HookPoint] = {}
        modules = dict(self.named_modules())
        for path, module in modules.items():
            while isinstance(modules[path], Part | nn.ModuleDict):
                path = path.rpartition(".")[0]
                path = path if path in modules else path.rpartition(".")[0]
            for attribute, value in vars(module).items():
                if isinstance(value, HookPoint):
                    value.name = f"{path}.{attribute}" if path else attribute
                    inside = IN_BLOCK.match(value.name)
                    value.layer = None if inside is None else int(inside.group(2))
                    self._hook_points[value.name] = value
        self._hook_points = dict(sorted(self._hook_points.items(), key=lambda item: _forward_order(item[1])))

    @property
    def hook_names(self) -> tuple[str, ...]:
        """All hook names of this model, in the order of the forward pass."""
        return tuple(self._hook_points)

    def hook_point(self, name: str) -> HookPoint:
        """The hook point called `name`. Raises HookError, with near matches, where there is none."""
        return self._hook_points[select_names(name, self._hook_points)[0]]

    @contextmanager
    def hooks(self, fwd_hooks: HookList = (), bwd_hooks: HookList = ()) -> Iterator[HookedModule]:
        """Attach hooks inside a `with` block; they are gone after it, also after an exception.

        Each is (names, function): names as in `run_with_cache`, function(tensor, hook) returning None or a tensor of the
        same shape. An in-place edit and a returned tensor have the same effect. Backward hooks get, and may replace, gradients.
        """
        attached: list[tuple[list[_Hook], _Hook]] = []
        forward = [(point.forward_hooks, _Hook(function)) for point, function in self._expand(fwd_hooks)]
        backward = [(point.backward_hooks, _Hook(function)) for point, function in self._expand(bwd_hooks)]
        try:
            for hooks, hook in forward + backward:
                hooks.append(hook)
                attached.append((hooks, hook))
            yield self
        finally:
            for hooks, hook in reversed(attached):
                if hook in hooks:
                    hooks.remove(hook)

    def _expand(self, hooks: HookList) -> list[tuple[HookPoint, HookFunction]]:
        pairs = []
        for entry in hooks:
            if not (isinstance(entry, tuple) and len(entry) == 2 and callable(entry[1])):
                raise HookError(f"a hook must be a pair (name, function), got {entry!r}.")
            pairs += [(self._hook_points[name], entry[1]) for name in select_names(entry[0], self._hook_points)]
        return pairs

    def add_hook(self, names: Names, function: HookFunction) -> None:
        """Attach a forward hook until `reset_hooks`; prefer `hooks`, which cleans up after itself."""
        for point, each in self._expand([(names, function)]):
            point.forward_hooks.append(_Hook(each))

    def reset_hooks(self) -> None:
        """Remove every hook of every kind."""
        for point in self._hook_points.values():
            point.forward_hooks.clear()
            point.backward_hooks.clear()

    def run_with_hooks(self, *args: Any, fwd_hooks: HookList = (), bwd_hooks: HookList = (), **kwargs: Any) -> Any:
        """Call the model with these hooks attached for this one call. Backward hooks outlive it for its own graph only."""
        with self.hooks(fwd_hooks, bwd_hooks):
            return self(*args, **kwargs)

    def run_with_cache(self, *args: Any, names: Names = None, detach: bool = True, **kwargs: Any) -> tuple[Any, ActivationCache]:
        """Call the model and keep the activations that `names` selects.

        names: a hook name, a glob ("blocks.*.attn.hook_z"), a list of either, or a predicate on names; None keeps all but
        the expensive ones (`attn.hook_result` and the split inputs).
        detach: False keeps the very tensors that the model goes on with, so that gradients with respect to them can be taken.
        Returns the model's output and an `ActivationCache`, of snapshots unless detach is False. Hooks already attached stay
        and run first. Raises HookError where a hook given by its full name lies on a part that this call skips.
        """
        kept: dict[str, Tensor] = {}

        def keep(tensor: Tensor, hook: HookPoint) -> None:
            kept[hook.name] = tensor.detach().clone() if detach else tensor

        points = [self._hook_points[name] for name in select_names(names, self._hook_points)]
        reader = _Hook(keep, reads_only=True, in_graph=not detach)
        try:
            for point in points:
                point.forward_hooks.append(reader)
            output = self(*args, **kwargs)
        finally:
            for point in points:
                if reader in point.forward_hooks:
                    point.forward_hooks.remove(reader)
        named = {names} if isinstance(names, str) else set() if names is None or callable(names) else set(names)
        if missed := sorted((named & set(self._hook_points)) - set(kept)):
            raise HookError(f"'{missed[0]}' has nothing to cache: this call skips that part of the model.")
        return output, ActivationCache(kept, self.n_layers)

    def _refuse_hooks_that_cannot_run(self, layers: range, embeds: bool, unembeds: bool) -> None:
        """Raise where a user's hook sits on a part of the model that this call skips, so that no edit is lost in silence."""
        for point in self._hook_points.values():
            if point.layer is None:
                runs = embeds if point.name.startswith(_EMBEDDING) else unembeds
                runs = bool(layers) if point.kind.startswith("streams.") else runs
            else:
                runs = point.layer in layers
            if not runs and point.is_edited:
                raise HookError(
                    f"hook on '{point.name}' cannot run: start_at_layer or stop_at_layer skips that part of the model."
                )


_EMBEDDING = ("hook_embed", "hook_pos_embed", "hook_token_type_embed", "embed_norm.")
_ORDER = (
    *_EMBEDDING,
    *("hook_streams_pre", "altup.hook_predict", "hook_resid_pre"),
    *("hook_q_input", "hook_k_input", "hook_v_input", "hook_mixer_in", "ln1.", "attn.", "ln1_post.", "hook_attn_out"),
    *("laurel.", "hook_laurel_out"),
    *("hook_resid_cross", "ln_cross.", "cross_attn.", "hook_cross_attn_out", "hook_resid_mid"),
    *("hook_mlp_in", "ln2.", "mlp.hook_uncut", "mlp.", "ln2_post.", "hook_mlp_out"),
    *("hook_resid_late", "altup.hook_correct", "hook_layer_embed", "layer_embed.", "hook_layer_out"),
)
_STACKS = ("encoder.", "decoder.", "")


def _forward_order(point: HookPoint) -> tuple[int, int, int]:
    found = IN_BLOCK.match(point.name)
    stack, inside = (found.group(1), found.group(3)) if found else ("", point.name)
    if not found:
        stack = next((prefix for prefix in _STACKS if prefix and point.name.startswith(prefix)), "")
        inside = point.name.removeprefix(stack)
    place = next((i for i, prefix in enumerate(_ORDER) if inside.startswith(prefix)), len(_ORDER))
    layer = point.layer if point.layer is not None else (-1 if place < len(_ORDER) else sys.maxsize)
    return _STACKS.index(stack), layer, place
