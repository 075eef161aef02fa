"""Named results with labelled axes: every analysis returns one, and each can be printed, tabulated, saved and loaded.

A result is a frozen dataclass of plain data and tensors. The subclass says how the axes of its tensors are called:

    @dataclass(frozen=True, repr=False, eq=False)
    class Depths(Result):
        schema: ClassVar[str] = "depths/1"
        axes: ClassVar[dict[str, tuple[str, ...]]] = {"depth": ("layer", "head")}

        model: str
        layer: tuple[int, ...]          # labels of the axis `layer`; an axis without such a field is numbered from 0
        depth: Float[Tensor, "layer head"]

Files are JSON: numbers exactly as they were, undefined ones (NaN) as null.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from .errors import ResultError
from .run import write_text

if TYPE_CHECKING:
    import pandas

Self = TypeVar("Self", bound="Result")
HTML_ROWS = 30


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """Base of all results; see the module's docstring for how to write one."""

    schema: ClassVar[str] = "result/1"
    axes: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Axis names of each tensor field."""
    records: ClassVar[dict[str, type]] = {}
    """Fields that hold a tuple of dataclass instances, and their class."""

    def labels_of(self, axis: str) -> Sequence[Any]:
        """Labels along an axis: the field named like the axis, else 0, 1, 2, ..."""
        if isinstance(labels := getattr(self, axis, None), tuple | list):
            return labels
        for field, names in self.axes.items():
            if axis in names and isinstance(tensor := getattr(self, field), Tensor):
                return range(tensor.shape[names.index(axis)])
        raise ResultError(f"{type(self).__name__} has no axis {axis!r}; its axes are {', '.join(self._axis_names())}.")

    def _axis_names(self) -> list[str]:
        return list(dict.fromkeys(itertools.chain.from_iterable(self.axes.values())))

    def tensors(self) -> dict[str, Tensor]:
        """The tensor fields, by name."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def to_pandas(self, axes: Sequence[str] | None = None) -> pandas.DataFrame:
        """A table with one row per combination of labels along `axes` and one column per tensor that has exactly these axes.

        `axes` defaults to those of the first tensor.
        """
        import pandas

        tensors = self.tensors()
        chosen = tuple(axes) if axes is not None else self.axes[next(iter(tensors))]
        columns = {name: tensor for name, tensor in tensors.items() if self.axes[name] == chosen}
        if not columns:
            raise ResultError(
                f"{type(self).__name__} has no tensor with the axes {chosen}; there are {sorted(set(self.axes.values()))}."
            )
        index = list(itertools.product(*(self.labels_of(axis) for axis in chosen)))
        labels = {axis: [row[place] for row in index] for place, axis in enumerate(chosen)}
        return pandas.DataFrame(labels | {name: tensor.flatten().tolist() for name, tensor in columns.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `from_dict` is the inverse."""
        fields = dataclasses.fields(self)
        return {"schema": self.schema} | {field.name: self._encoded(field.name, getattr(self, field.name)) for field in fields}

    def _encoded(self, name: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            return {
                "axes": list(self.axes[name]),
                "dtype": str(value.dtype).removeprefix("torch."),
                "values": _numbers(value.tolist()),
            }
        if name in self.records:
            return [_plain(dataclasses.asdict(record)) for record in value]
        return _plain(value)

    @classmethod
    def from_dict(cls: type[Self], data: Any) -> Self:
        """Rebuild a result from `to_dict` output. Raises ResultError where it holds another kind of result or lacks a field."""
        if not isinstance(data, dict) or data.get("schema") != cls.schema:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise ResultError(f"expected a result with schema {cls.schema!r}, got {found!r}.")
        names = [field.name for field in dataclasses.fields(cls)]
        if missing := [name for name in names if name not in data]:
            raise ResultError(f"the {cls.schema!r} result lacks {', '.join(missing)}.")
        return cls(**{name: cls._decoded(name, data[name]) for name in names})

    @classmethod
    def _decoded(cls, name: str, value: Any) -> Any:
        if name in cls.axes and isinstance(value, dict):
            return torch.tensor(_unnumbers(value["values"]), dtype=getattr(torch, value["dtype"]))
        if name in cls.records:
            return tuple(cls.records[name](**{key: _frozen(item) for key, item in record.items()}) for record in value)
        return _frozen(value)

    def save(self, path: str | Path) -> Path:
        """Write the result as JSON, in one step."""
        return write_text(path, json.dumps(self.to_dict(), allow_nan=False) + "\n")

    @classmethod
    def load(cls: type[Self], path: str | Path) -> Self:
        """Read what `save` wrote. Raises ResultError for a missing file, one that is not JSON, or another kind of result."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ResultError(f"cannot read a result from {path}: {error.strerror}.") from None
        except (ValueError, RecursionError):
            raise ResultError(f"{path} is not a JSON file.") from None
        return cls.from_dict(data)

    def summary(self) -> str:
        """One line on what the result says; subclasses give the finding."""
        sizes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in self.tensors().items())
        return sizes or "no tensors"

    def __repr__(self) -> str:
        plain = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        scalars = ", ".join(f"{name}={value!r}" for name, value in plain if isinstance(value, str | int | float | bool))
        return f"{type(self).__name__}({scalars}): {self.summary()}"

    def _repr_html_(self) -> str:
        """A notebook shows the first rows of the table."""
        head = f"<p>{html.escape(repr(self))}</p>"
        if not self.tensors():
            return head
        table = self.to_pandas()
        note = f"<p>{len(table)} rows, the first {HTML_ROWS} shown</p>" if len(table) > HTML_ROWS else ""
        return head + table.head(HTML_ROWS).to_html(index=False, float_format="{:.3f}".format, na_rep="", border=0) + note


def _numbers(value: Any) -> Any:
    """Nested lists with NaN as null and infinities as words, which JSON lacks."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _unnumbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_unnumbers(item) for item in value]
    return math.nan if value is None else float(value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return _numbers(value)


def _frozen(value: Any) -> Any:
    """Lists of a file as the tuples that results hold."""
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return {key: _frozen(item) for key, item in value.items()} if isinstance(value, dict) else value
