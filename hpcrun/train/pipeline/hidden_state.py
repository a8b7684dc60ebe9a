"""Search of functions for variables and layers that they use from outside, which Keras does not know about."""

from __future__ import annotations

import inspect
import sysconfig
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARY_FOLDERS = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_MAKING_VARIABLES = {"add_weight", "add_variable", "Variable", "build"}  # names in `build` of layers with variables


def find_hidden_state(value: object) -> str:
    """Return a description of a variable or layer that a function uses from outside; empty if none is found.

    Args:
        value: A function, or a container with functions, variables and layers.
    """
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
        elif item.variables or any(map(_will_have_variables, item._flatten_layers())):  # noqa: SLF001
            return f"the layer {item.name!r}"
    return ""


def _will_have_variables(layer: keras.layers.Layer) -> bool:
    """Return whether a layer that has not been called yet makes variables in its first call."""
    build = inspect.unwrap(type(layer).build)
    return not layer.built and not _MAKING_VARIABLES.isdisjoint(build.__code__.co_names)


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
        names = frozenset([value.__func__.__name__])
        parts = [value.__func__, value.__self__]
    elif isinstance(value, partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, tf.types.experimental.PolymorphicFunction):  # a `tf.function`
        parts = [value.python_function]
    elif isinstance(value, dict | list | tuple):
        parts = list(value.values()) if isinstance(value, dict) else list(value)
    elif isinstance(value, ModuleType | type):
        parts = [vars(value)[name] for name in names if name in vars(value)]
    else:
        names, parts = _parts_of_instance(value, names)
    yield from ((part, names) for part in parts)


def _parts_of_instance(value: object, names: frozenset[str]) -> tuple[frozenset[str], list[object]]:
    """Return the names that the methods of an object use, and what these are.

    Args:
        value: The object; a call of it is a use of ``__call__``.
        names: The names that a function uses by which this value is reached.
    """
    used, functions, pending = set[str](), list[object](), {*names, "__call__"}
    while pending:
        used.add(name := pending.pop())
        method = inspect.getattr_static(type(value), name, None)
        if isinstance(method, FunctionType) and not _is_of_a_library(method):
            functions.append(method)
            pending |= {*_names(method.__code__)} - used
    attributes = getattr(value, "__dict__", {})
    return frozenset(used), [*functions, *(attributes[name] for name in used if name in attributes)]


def _is_of_a_library(value: FunctionType | ModuleType) -> bool:
    file = value.__code__.co_filename if isinstance(value, FunctionType) else getattr(value, "__file__", None)
    return file is None or file.startswith(_LIBRARY_FOLDERS)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of global variables and attributes that code uses, also in functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
