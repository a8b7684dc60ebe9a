"""Frozen dataclasses that are quick to define: ``@frozen`` instead of ``@dataclass(frozen=True)``.

The standard library compiles up to seven methods for each frozen dataclass, which takes 0.7 ms; a command of hpcrun
imports about fifty of these classes. Here all classes share their methods, but for ``__init__``. The type checker
refuses assignments to attributes; at run time nothing does, as with ``typing.Final``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Any] | None = None, /, *, kw_only: bool = False) -> Any:
    """Make a frozen dataclass of a class.

    Args:
        cls: The class.
        kw_only: Whether ``__init__`` accepts the fields by keyword only.
    """

    def make_frozen(decorated_class: type[Any]) -> type[Any]:
        for name, method in _SHARED_METHODS.items():
            if name not in vars(decorated_class):
                setattr(decorated_class, name, method)
        return dataclass(repr=False, eq=False, kw_only=kw_only)(decorated_class)

    return make_frozen if cls is None else make_frozen(cls)


def _repr(self: Any) -> str:
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in self.__dataclass_fields__.values() if each.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _values(instance: Any) -> Any:
    """Return the values that equality and hash depend on."""
    cls = type(instance)
    if "_get_values" not in vars(cls):
        names = [each.name for each in cls.__dataclass_fields__.values() if each.compare]
        cls._get_values = attrgetter("__class__", *names)
    return cls._get_values(instance)


_SHARED_METHODS = {"__repr__": _repr, "__eq__": _eq, "__hash__": _hash}
