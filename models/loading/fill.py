"""Putting a checkpoint's tensors into a model, one at a time, without a second copy of the weights.

The model starts on the meta device, where it has shapes but no memory. Names and sizes of all tensors are compared before
the first is read; then each parameter is read, reshaped, checked for NaN and infinity, and put in place.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..config import TransformerConfig
from ..errors import CheckpointError
from .sharing import Apart
from .transforms import TRANSFORMS, AtLeast, Shape

if TYPE_CHECKING:
    from ..encoder_decoder import HookedEncoderDecoder
    from ..transformer import HookedTransformer


LARGEST = 1 << 48
"""Entries of a matrix that are still taken for real."""


@runtime_checkable
class TensorSource(Protocol):
    """Tensors by name, whose shapes are known before they are read."""

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> Shape: ...

    def read(self, name: str) -> Tensor: ...

    def where(self, name: str) -> str:
        """The file or object that holds a tensor, for error messages."""
        ...


@dataclass(frozen=True)
class Weight:
    """Where one parameter comes from: a tensor of the checkpoint and the transform it goes through.

    "{l}" in the name stands for the layer; "{e}" for each expert in turn, whose tensors are stacked on a new first axis.
    """

    name: str
    transform: str = "as_is"


class MappingSource:
    """A dict of tensors as a TensorSource."""

    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        self._tensors, self._where = tensors, where

    def names(self) -> Iterable[str]:
        return self._tensors

    def shape(self, name: str) -> Shape:
        return tuple(self._tensors[name].shape)

    def read(self, name: str) -> Tensor:
        return self._tensors[name].detach()

    def where(self, name: str) -> str:
        return self._where


def build_model(
    cfg: TransformerConfig,
    source: TensorSource,
    weights: Mapping[str, Weight] | None,
    ignored: Iterable[str] = (),
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> HookedTransformer | HookedEncoderDecoder:
    """A model with this config and the tensors of `source`, in evaluation mode.

    weights: templates by parameter name, "{l}" standing for the layer in both names; None where the tensors have our own names.
    A parameter may have an entry of its own in layers with a certain mixer: "gated_delta:blocks.{l}.attn.q.weight".
    ignored: patterns (re.search) of tensors that the checkpoint may hold and the model does not need.
    No two parameters share memory, whatever the tensors do.
    Raises CheckpointError naming missing and unexpected tensors, wrong sizes, and tensors with NaN or infinite entries.
    """
    _check_sizes(cfg, source)
    model = empty_model(cfg)
    plan = _plan(model, source, weights, tuple(ignored))
    owners, apart = _owners(model), Apart()
    for parameter, planned in plan.items():
        value = nn.Parameter(apart(planned.read(source, dtype, device)))
        for module, attribute in owners[parameter]:
            setattr(module, attribute, value)
    return model.eval()


def empty_model(cfg: TransformerConfig) -> HookedTransformer | HookedEncoderDecoder:
    """The model of a config on the meta device: parameters with shapes, without memory."""
    from ..build import make_model

    try:
        with _NoInitialisation(), torch.device("meta"):
            return make_model(cfg)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise CheckpointError(f"the config states sizes that no tensor can have: {str(error).splitlines()[0]}.") from None


def _check_sizes(cfg: TransformerConfig, source: TensorSource) -> None:
    """Raise CheckpointError for sizes that not even a tensor without memory can have; others are compared tensor by tensor."""
    positions = [("n_ctx",)] if cfg.positions == "learned" else []
    fields = (("d_vocab",), ("d_vocab_out",), ("d_mlp",), ("n_heads", "d_head"), *positions)
    matrices = [{field: getattr(cfg, field) for field in (*each, "d_model")} for each in fields]
    if (experts := cfg.experts) is not None:
        matrices += [{"n_experts": experts.n_experts, "d_expert": experts.d_expert, "d_model": cfg.d_model}]
        matrices += [{"d_shared": experts.d_shared, "d_model": cfg.d_model}]
    for sizes in matrices:
        if math.prod(sizes.values()) > LARGEST:
            stated = ", ".join(f"{field}={reprlib.repr(size)}" for field, size in sizes.items())
            where = source.where(next(iter(source.names()), ""))
            raise CheckpointError(f"the config states {stated}, a matrix too large for any file; {where} holds no such tensor.")


class _NoInitialisation(TorchFunctionMode):
    """Leaves parameters as they are: random numbers mean nothing on the meta device, and drawing them there is slow."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


IN_BLOCK = re.compile(r"^((?:encoder\.|decoder\.)?)blocks\.(\d+)\.")


def template_of(parameter: str) -> tuple[str, str]:
    """A parameter's name with its layer replaced by "{l}", and that layer ("" outside the blocks)."""
    found = IN_BLOCK.match(parameter)
    return (IN_BLOCK.sub(r"\1blocks.{l}.", parameter), found.group(2)) if found else (parameter, "")


def config_of(parameter: str, cfg: TransformerConfig) -> TransformerConfig:
    """The config of the layer that a parameter belongs to; that of its stack outside the blocks."""
    stack = cfg.encoder if parameter.startswith("encoder.") and cfg.encoder is not None else cfg
    found = IN_BLOCK.match(parameter)
    return stack.for_layer(int(found.group(2))) if found else stack


def _own_name(template: str) -> Weight:
    """Our own format's tensor for a parameter; its table of learned positions may be longer than the context in use."""
    return Weight(template, "leading_rows" if template.endswith("pos_embed.weight") else "as_is")


@dataclass(frozen=True)
class _Planned:
    """The tensors one parameter is made of (several where experts are stacked), how, and for which layer's config."""

    names: tuple[str, ...]
    stacked: bool
    transform: str
    cfg: TransformerConfig

    def source_shape(self, shape: Shape) -> Shape:
        """What each tensor must be for a parameter of this shape."""
        return TRANSFORMS[self.transform].source_shape(shape[1:] if self.stacked else shape, self.cfg)

    def read(self, source: TensorSource, dtype: torch.dtype, device: torch.device | str) -> Tensor:
        """The parameter's value."""
        apply = TRANSFORMS[self.transform].apply
        parts = (_checked(apply(source.read(name), self.cfg), name, source, dtype, device) for name in self.names)
        return torch.stack(list(parts)) if self.stacked else next(parts)


def _planned(parameter: str, weight: Weight, layer: str, cfg: TransformerConfig, n_stacked: int) -> _Planned:
    name = weight.name.replace("{l}", layer)
    stacked = "{e}" in name
    names = tuple(name.replace("{e}", str(expert)) for expert in range(n_stacked)) if stacked else (name,)
    return _Planned(names, stacked, weight.transform, config_of(parameter, cfg))


def entry_of(parameter: str, weights: Mapping[str, Weight], cfg: TransformerConfig) -> str | None:
    """The entry of a weight map for a parameter: one for layers with its layer's mixer, else one for all; None without any."""
    template, _ = template_of(parameter)
    return next((key for key in (f"{config_of(parameter, cfg).mixer}:{template}", template) if key in weights), None)


def _plan(
    model: nn.Module, source: TensorSource, weights: Mapping[str, Weight] | None, ignored: tuple[str, ...]
) -> dict[str, _Planned]:
    """The tensors and transform of every parameter, in the order of the source, after all names and sizes have been checked."""
    cfg: TransformerConfig = model.cfg  # type: ignore[assignment]
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    plan = {}
    for parameter, shape in shapes.items():
        template, layer = template_of(parameter)
        entry = template if weights is None else entry_of(parameter, weights, cfg)
        if entry is None:
            raise CheckpointError(f"this kind of checkpoint has no tensor for the parameter '{parameter}'.")
        weight = _own_name(template) if weights is None else weights[entry]
        plan[parameter] = _planned(parameter, weight, layer, cfg, shape[0])
    _check_names({name for planned in plan.values() for name in planned.names}, source, ignored)
    for parameter, planned in plan.items():
        wanted = planned.source_shape(shapes[parameter])
        for name in planned.names:
            _check_shape(name, source.shape(name), wanted, source)
    order = {name: place for place, name in enumerate(source.names())}
    return dict(sorted(plan.items(), key=lambda item: order[item[1].names[0]]))


def _check_names(wanted: set[str], source: TensorSource, ignored: tuple[str, ...]) -> None:
    present = set(source.names())
    where = source.where(next(iter(present))) if present else "the checkpoint"
    if missing := sorted(wanted - present):
        raise CheckpointError(f"{where} lacks {_listed(missing)}, which this model needs.")
    unexpected = sorted(name for name in present - wanted if not any(re.search(pattern, name) for pattern in ignored))
    if unexpected:
        raise CheckpointError(
            f"{source.where(unexpected[0])} holds {_listed(unexpected)}, which its config does not account for."
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ("tensor " if len(names) == 1 else "tensors ") + ", ".join(f"'{name}'" for name in names[:3]) + more


def _check_shape(name: str, got: Shape, wanted: Shape, source: TensorSource) -> None:
    fits = len(got) == len(wanted) and all(
        have >= want if isinstance(want, AtLeast) else have == want for have, want in zip(got, wanted, strict=True)
    )
    if not fits:
        raise CheckpointError(
            f"tensor '{name}' in {source.where(name)} has shape {list(got)}, but its config asks for {list(wanted)}."
        )


def _checked(tensor: Tensor, name: str, source: TensorSource, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """The tensor in the model's dtype and on its device, contiguous; copied only where one of these changes it."""
    if not tensor.is_floating_point():
        raise CheckpointError(f"tensor '{name}' in {source.where(name)} holds {tensor.dtype}, wanted floating-point numbers.")
    cast = tensor.to(device, dtype).contiguous()
    if cast.numel() and not _finite(cast):
        cause = "NaN or infinite entries" if not _finite(tensor.float()) else f"entries too large for {dtype}"
        raise CheckpointError(f"tensor '{name}' in {source.where(name)} has {cause}.")
    return cast


def _finite(tensor: Tensor) -> bool:
    """Whether all entries are finite; aminmax propagates NaN and, unlike isfinite, allocates nothing."""
    low, high = torch.aminmax(tensor)
    return bool(low.isfinite() & high.isfinite())


def _owners(model: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """For each distinct parameter, every module attribute that refers to it: two where embeddings are tied."""
    first: dict[int, str] = {}
    owners: dict[str, list[tuple[nn.Module, str]]] = {}
    for path, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                name = first.setdefault(id(parameter), f"{path}.{attribute}" if path else attribute)
                owners.setdefault(name, []).append((module, attribute))
    return owners
