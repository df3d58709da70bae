"""Converts frozen dataclasses to plain JSON values and back. Unknown fields and wrong types are errors."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

T = TypeVar("T")


def encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, frozenset)):
        return [encode(item) for item in value]
    return value


def encode_named(value: Any) -> dict[str, Any]:
    """A dataclass with the name of its class under "is"."""
    return {"is": type(value).__name__, **encode(value)}


def decode_named(kinds: Mapping[str, type[T]], data: Any) -> T:
    """The one of `kinds`, by name, that `encode_named` turned into `data`; raises ValueError for anything else."""
    fields = dict(_require_type(dict, data, "message"))
    kind = kinds.get(str(fields.pop("is", None)))
    if kind is None:
        raise ValueError(f"unknown message {data.get('is')!r}")
    return decode(kind, fields)


def decode(kind: type[T], data: Any) -> T:
    """The inverse of `encode` for the dataclass `kind`. Raises ValueError, which names the field."""
    return typing.cast(T, _decode(kind, data, kind.__name__))


def _decode(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, data, where)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_optional(kind, data, where)
    if origin is tuple:
        return tuple(_decode(typing.get_args(kind)[0], item, where) for item in _require_type(list, data, where))
    if origin is not None:  # Mapping[str, V]
        value_kind = typing.get_args(kind)[1]
        return {
            key: _decode(value_kind, item, f"{where}.{key}") for key, item in _require_type(dict, data, where).items()
        }
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _convert(kind, data, where)
    if kind is timedelta:
        return _convert(lambda seconds: timedelta(seconds=seconds), _require_type((int, float), data, where), where)
    if kind is float:
        return float(_require_type((int, float), data, where))
    return data if kind is Any else _require_type(kind, data, where)


def _decode_fields(kind: Any, data: Any, where: str) -> Any:
    hints = _field_types(kind)
    names = set(hints)
    unknown = sorted(set(_require_type(dict, data, where)) - names)
    if unknown:
        raise ValueError(f"{where} has no field {unknown[0]!r}")
    try:
        return kind(**{name: _decode(hints[name], data[name], f"{where}.{name}") for name in names & set(data)})
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


@functools.cache
def _field_types(kind: Any) -> dict[str, Any]:
    resolved = typing.get_type_hints(kind)
    return {field.name: resolved[field.name] for field in dataclasses.fields(kind)}


def _decode_optional(kind: Any, data: Any, where: str) -> Any:
    if data is None:
        return None
    inner = next(part for part in typing.get_args(kind) if part is not type(None))
    return _decode(inner, data, where)


def _convert(make: Callable[[Any], Any], data: Any, where: str) -> Any:
    try:
        return make(data)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where} is {data!r}: {error}") from error


def _require_type(kind: Any, data: Any, where: str) -> Any:
    wrong = not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool)
    if wrong:
        raise ValueError(f"{where} is {data!r}, which is not of type {getattr(kind, '__name__', kind)}")
    return data
