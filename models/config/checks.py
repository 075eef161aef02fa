"""Checks that all configs share: fields are of their annotated type, choices are known, numbers are positive."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ConfigError, closest


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number of a size that some machine could hold."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def is_number(value: Any) -> bool:
    """Whether a value is a number that arithmetic in float32 survives."""
    return is_whole(value) or (isinstance(value, float) and abs(value) <= 1e30)


def is_plain(value: Any) -> bool:
    """Whether a value is text, a flag or a finite number."""
    return isinstance(value, bool | str) or is_number(value)


def _tuple_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(fits, value))


TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", is_whole),
    "int | None": ("a whole number or None", lambda value: value is None or is_whole(value)),
    "float": ("a finite number", is_number),
    "float | None": ("a finite number or None", lambda value: value is None or is_number(value)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "str": ("text", lambda value: isinstance(value, str)),
    "tuple[str, ...]": ("a tuple of text", _tuple_of(lambda value: isinstance(value, str))),
    "tuple[int, ...]": ("a tuple of whole numbers", _tuple_of(is_whole)),
    "tuple[float, ...]": ("a tuple of finite numbers", _tuple_of(is_number)),
    "dict[str, dict[str, Any]]": (
        "a dict of dicts of fields",
        lambda value: isinstance(value, dict) and all(isinstance(v, dict) for v in value.values()),
    ),
    "dict[str, Any]": (
        "a dict of numbers, text and flags",
        lambda value: isinstance(value, dict) and all(isinstance(k, str) and is_plain(v) for k, v in value.items()),
    ),
}
"""By annotation of a field: what it must be, in words, and the test. A nested config is an instance of its class or None."""


def check_types(cls: Any, values: dict[str, Any], prefix: str = "") -> None:
    """Raise ConfigError where a value is not of the type its field is annotated with."""
    for field in dataclasses.fields(cls):
        if field.name not in values:
            continue
        value, annotation = values[field.name], str(field.type)
        words, fits = TYPES.get(annotation) or _nested(annotation)
        if not fits(value):
            raise ConfigError(f"{prefix}{field.name} must be {words}, got {value!r}.")


def _nested(annotation: str) -> tuple[str, Callable[[Any], bool]]:
    name = annotation.removesuffix(" | None")
    return f"a {name} or None", lambda value: value is None or type(value).__name__ == name


def known_fields(cls: type, data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`data` with JSON's lists as tuples and its whole numbers as floats where the class has such fields.

    Raises ConfigError, with near matches, on an unknown field, and on one of the wrong type.
    """
    annotations = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    for key in data:
        if key not in annotations:
            raise ConfigError(f"config has an unknown field {prefix}{key!r}{closest(key, annotations)}.")
    data = {
        key: tuple(value) if isinstance(value, list) and annotations[key].startswith("tuple") else value
        for key, value in data.items()
    }
    check_types(cls, data, prefix)
    floats = {key for key, annotation in annotations.items() if annotation.startswith("float")}
    return {key: float(value) if key in floats and value is not None else value for key, value in data.items()}


def one_of(field: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ConfigError, with near matches, where a value is none of the choices."""
    choices = tuple(choices)
    if value not in choices:
        raise ConfigError(f"{field} must be one of {', '.join(choices)}; got {value!r}{closest(str(value), choices)}.")


def positive(field: str, value: int | float) -> None:
    """Raise ConfigError where a number is not above 0."""
    if not value > 0:
        raise ConfigError(f"{field} must be positive, got {value!r}.")
