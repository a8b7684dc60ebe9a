"""Search of functions for variables and layers that they use from outside, which Keras does not know about."""

from __future__ import annotations

import sysconfig
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY_FOLDERS = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def find_hidden_state(value: object) -> str:
    """Return a description of a variable or layer that a function uses from outside; empty if none is found.

    Args:
        value: A function, or a container with functions, variables and layers.
    """
    import tensorflow as tf

    pending, seen = [(value, frozenset[str]())], set[tuple[int, frozenset[str]]]()
    while pending:
        item, names = pending.pop()
        if (id(item), names) in seen:
            continue
        seen.add((id(item), names))
        if isinstance(item, keras.Variable | tf.Variable):
            return f"the variable {item.name!r}"
        if not isinstance(item, keras.layers.Layer):
            pending.extend(_parts(item, names))
        elif item.variables:
            return f"the layer {item.name!r}"
    return ""


def _parts(value: object, names: frozenset[str]) -> Iterator[tuple[object, frozenset[str]]]:
    """Yield the values that a function may reach through a value, each with the names that the function uses.

    Args:
        value: Any value.
        names: The names that the function uses by which this value is reached.
    """
    if isinstance(value, FunctionType | ModuleType) and _is_of_a_library(value):
        return
    parts: list[object]
    if isinstance(value, FunctionType):
        names = frozenset(_names(value.__code__))
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != type(cell)()]
        used = [value.__globals__[name] for name in names if name in value.__globals__]
        parts = [*cells, *used, value.__defaults__, value.__kwdefaults__]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, dict | list | tuple):
        parts = list(value.values()) if isinstance(value, dict) else list(value)
    else:
        attributes = getattr(value, "__dict__", {})
        parts = [attributes[name] for name in names if name in attributes]
    yield from ((part, names) for part in parts)


def _is_of_a_library(value: FunctionType | ModuleType) -> bool:
    file = value.__code__.co_filename if isinstance(value, FunctionType) else getattr(value, "__file__", None)
    return file is None or file.startswith(_LIBRARY_FOLDERS)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of global variables and attributes that code uses, also in functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
