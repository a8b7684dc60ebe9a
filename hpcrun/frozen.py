"""Frozen dataclasses that are quick to define: ``@frozen`` instead of ``@dataclass(frozen=True)``.

The standard library compiles up to seven methods for each frozen dataclass, which takes 0.7 ms; a command of hpcrun
imports about fifty of these classes. Here all classes share their methods, and only classes with many instances get an
``__init__`` that is compiled for them. The type checker refuses assignments to attributes; at run time they are
possible, as with ``typing.Final``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
FREQUENT = 30
"""Number of instances of a class above which a compiled ``__init__`` saves more time than its compilation takes."""

_instance_counts: Counter[type] = Counter()


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
        return dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(decorated_class)

    return make_frozen if cls is None else make_frozen(cls)


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    cls: Any = type(self)
    all_fields = fields(cls)
    given = dict(zip((each.name for each in all_fields if not each.kw_only), args, strict=False)) | kwargs
    values = {each.name: given[each.name] if each.name in given else _default(each) for each in all_fields}
    is_valid = len(given) == len(args) + len(kwargs) and given.keys() <= values.keys()
    is_valid = is_valid and all(value is not MISSING for value in values.values())
    _instance_counts[cls] += 1
    if not is_valid or _instance_counts[cls] > FREQUENT:
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *args, **kwargs)  # raises a TypeError for invalid arguments
        return
    vars(self).update(values)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _default(each: Any) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _compile_init(cls: type[Any]) -> Any:
    """Return the ``__init__`` that the standard library compiles for a dataclass."""
    namespace = {"__post_init__": None} if hasattr(cls, "__post_init__") else {}
    own_fields = [(each.name, each.type, each) for each in fields(cls)]
    compiled_class: Any = make_dataclass(cls.__name__, own_fields, namespace=namespace, repr=False, eq=False)
    return compiled_class.__init__


def _repr(self: Any) -> str:
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _values(instance: Any) -> Any:
    """Return the values that equality and hash depend on."""
    cls = type(instance)
    if "_get_values" not in vars(cls):
        cls._get_values = attrgetter("__class__", *(each.name for each in fields(cls) if each.compare))
    return cls._get_values(instance)


_SHARED_METHODS = {"__init__": _init, "__repr__": _repr, "__eq__": _eq, "__hash__": _hash}
