"""`record`: a frozen dataclass with keyword arguments only, made without generated code.

`dataclass` compiles six functions for each class. With a hundred classes that took half of the start of every process.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[T], T]:
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[T]) -> type[T]:
    """Behaves like `@dataclass(frozen=True, kw_only=True)`; `fields`, `replace` and `is_dataclass` work."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # dataclass would make one from the signature, which takes long
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
    fields = dataclasses.fields(made)
    made.__init__ = _initializer(cls.__qualname__, fields, getattr(cls, "__post_init__", None))
    made.__eq__, made.__hash__ = _comparison(tuple(one.name for one in fields if one.compare))
    made.__setattr__, made.__delattr__ = _refuse_change, _refuse_deletion
    if "__repr__" not in vars(cls):
        made.__repr__ = _representation(tuple(one.name for one in fields if one.repr))
    return cls


def _initializer(
    name: str, fields: tuple[dataclasses.Field[Any], ...], after: Callable[[Any], None] | None
) -> Callable[..., None]:
    names = {one.name for one in fields}
    defaults = {one.name: one.default for one in fields if one.default is not dataclasses.MISSING}
    factories = [(one.name, one.default_factory) for one in fields if one.default_factory is not dataclasses.MISSING]

    def initialize(self: Any, /, **values: Any) -> None:
        own = vars(self)
        own.update(defaults)
        own.update(values)
        for field, factory in factories:
            if field not in values:
                own[field] = factory()
        if own.keys() != names:
            raise TypeError(_complaint(name, own.keys() - names, names - own.keys()))
        if after is not None:
            after(self)

    return initialize


def _complaint(name: str, unknown: set[str], missing: set[str]) -> str:
    kind, names = ("unknown", unknown) if unknown else ("missing", missing)
    return f"{kind} arguments of {name}: {', '.join(sorted(names))}"


def _comparison(names: tuple[str, ...]) -> tuple[Callable[[Any, object], bool], Callable[[Any], int]]:
    values: Callable[[Any], Any] = operator.attrgetter(*names) if names else lambda _: ()

    def is_equal(self: Any, other: object) -> bool:
        return other.__class__ is self.__class__ and bool(values(self) == values(other))

    def hashed(self: Any) -> int:
        return hash(values(self))

    return is_equal, hashed


def _representation(names: tuple[str, ...]) -> Callable[[Any], str]:
    def represent(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return represent


def _refuse_change(self: Any, name: str, _value: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__qualname__}")


def _refuse_deletion(self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r} of {type(self).__qualname__}")
