"""Configurations of Keras objects, as values that can be compared between ranks."""

from __future__ import annotations

import functools
import json
import types
import warnings
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.train.types import Keras

# Keys that may differ between ranks: names depend on earlier layers; seeds are compared elsewhere.
_IGNORED_KEYS = {"name", "seed"}
_EMPTY_CELL = types.CellType()


def config_of(keras_object: Keras) -> dict[str, Keras]:
    """Return the configuration of a layer, loss, metric or optimizer, without parts that may differ between ranks."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Keras warns that lambdas are unsafe to save
            config = keras_object.get_config()
    except Exception:  # noqa: BLE001  (a user's class without a usable get_config)
        return {}
    config = (
        {**config, **getattr(keras_object, "_fn_kwargs", {})} if isinstance(config, dict) else {}
    )  # parameters of a loss, such as Huber's delta
    for key, value in config.items():
        if _is_lambda(value):
            candidates = (getattr(keras_object, name, None) for name in (key, f"_{key}"))
            config[key] = next((candidate for candidate in candidates if hasattr(candidate, "__code__")), "a lambda")
    return {key: value for key, value in config.items() if key not in _IGNORED_KEYS}


def _is_lambda(value: Keras) -> bool:
    """Return whether a value is a serialized lambda, which contains a file name that may differ between ranks."""
    if not isinstance(value, dict):
        return False
    code = value.get("value")
    has_no_class = len(value) == 1 and isinstance(code, list | tuple) and len(code) == 3  # a lambda as activation
    return has_no_class or value.get("class_name") == "__lambda__"


def to_comparable(value: Keras) -> object:
    """Convert a value to JSON values, without parts that may differ between equivalent models."""
    if isinstance(value, dict) and str(value.get("class_name")).endswith("DTypePolicy"):
        return to_comparable(
            list(value["config"].items())
        )  # dtype policies are equal if their configurations are equal, regardless of their names
    if isinstance(value, dict):
        return {
            str(key): to_comparable(item) for key, item in sorted(value.items(), key=str) if key not in _IGNORED_KEYS
        }
    if isinstance(value, list | tuple):
        return [to_comparable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(to_comparable(item)) for item in value)
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), zlib.crc32(np.ascontiguousarray(value).tobytes())]
    return (
        _comparable_scalar(value)
        if isinstance(value, int | float | str | np.generic | None)
        else _describe_object(value)
    )


def _comparable_scalar(value: float | str | np.generic | None) -> object:
    if isinstance(value, float | np.floating):
        return f"{value:.9g}"
    if isinstance(value, np.generic):
        return str(value)
    return "a path" if isinstance(value, str) and "/" in value else value


def _comparable_numbers(values: Iterable[object]) -> list[object]:
    return [to_comparable(value) for value in values if isinstance(value, int | float)]


def _describe_object(value: Keras) -> object:
    """Return values that identify an object, because repr() may contain a memory address."""
    if isinstance(value, functools.partial):
        return ["partial", _describe_object(value.func), to_comparable(value.args), to_comparable(value.keywords)]
    if code := getattr(value, "__code__", None):  # compare the code: all lambdas have the same name
        closure = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY_CELL]
        return [
            value.__qualname__,
            code.co_code.hex(),
            code.co_names,
            _comparable_numbers(code.co_consts),
            _comparable_numbers(value.__defaults__ or ()),
            _comparable_numbers((value.__kwdefaults__ or {}).values()),
            _comparable_numbers(closure),
        ]
    if hasattr(value, "get_config") and not isinstance(value, type):
        return [type(value).__name__, to_comparable(config_of(value))]
    return [type(value).__name__, getattr(value, "__name__", "")]
