"""Validation of a site's values with pydantic, with readable error messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from hpcrun import resource_hints
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.field_checks import FieldError
from hpcrun.resources import is_valid
from hpcrun.sites import toml, unknown_keys
from hpcrun.sites.line_numbers import format_location
from hpcrun.sites.model import Site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def validate(values: dict[str, Any], origins: dict[tuple[str, ...], Path]) -> Site:
    """Return the site that the merged values of its files describe.

    Args:
        values: The values, and the site's name.
        origins: The file each value came from, by its key path.

    Raises:
        HpcrunError: The file, line, key, value, valid values and closest valid name of each fault.
    """
    try:
        return TypeAdapter(Site).validate_python(values)
    except ValidationError as error:
        messages: dict[tuple[str, ...], str] = {}
        for fault in error.errors():  # one for each type that the value may have
            if _is_about_the_other_kind(dict(fault)):
                continue
            for inner in _inner_errors(dict(fault)):
                key, text = _describe_fault(dict(fault), inner, origins)
                messages.setdefault(key, text)
        unknown = any(fault["type"] == _UNKNOWN_KEY for fault in error.errors())
        raise HpcrunError("\n".join(messages.values()), hint=unknown_keys.HINT if unknown else None) from None


_UNKNOWN_KEY = "unexpected_keyword_argument"
"""Pydantic's name of the fault."""

_LAUNCHER_TABLE, _LAUNCHER_NAME = "CustomLauncher", "function-after[require(), str]"
"""What pydantic adds to the path to a fault of the key launcher, which may be a table or a text."""


def _is_about_the_other_kind(fault: dict[str, Any]) -> bool:
    """Return whether a fault of the key launcher is only that a text is no table, or a table no text."""
    other = {_LAUNCHER_TABLE: ("dataclass_type", str), _LAUNCHER_NAME: ("string_type", dict)}
    return any((fault["type"], type(fault["input"])) == other.get(part) for part in fault["loc"])


def _inner_errors(fault: dict[str, Any]) -> tuple[Any, ...]:
    """Return the errors of hpcrun's own checks in a fault; one None where pydantic found it."""
    inner = fault.get("ctx", {}).get("error")
    return (inner, *inner.others) if isinstance(inner, FieldError) else (inner,)


def _describe_fault(
    fault: dict[str, Any], inner: Any, origins: dict[tuple[str, ...], Path]
) -> tuple[tuple[str, ...], str]:
    """Return the key with a fault, and its message."""
    path = tuple(str(part) for part in fault["loc"] if part not in {_LAUNCHER_TABLE, _LAUNCHER_NAME})
    value, reason = fault["input"], fault["msg"]
    if isinstance(inner, FieldError):
        path, value, reason = (*path, *inner.parents, inner.field), inner.value, inner.reason
        meant = resource_hints.propose_value((*inner.parents, inner.field)[0], value)
        if meant and ("defaults" not in path or is_valid(inner.field, meant)):
            reason += f"; did you mean {toml.literal(meant)}?"
    elif isinstance(inner, ValueError):
        reason = str(inner)
    if fault["type"] == "literal_error":
        reason = _expect_choice(value, fault["ctx"]["expected"])
    if wanted := _EXPECTED.get(fault["type"]):
        reason = wanted(value, path)
    key = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in origins), path)
    file = origins.get(key)
    at = format_location(file, key) if file else "site file"
    if fault["type"] != _UNKNOWN_KEY:
        return key, f"{at}: {'.'.join(key)} = {value!r}: {reason}"
    return key, f"{at}: {unknown_keys.describe(path, value)}"


def _expect_list(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, dict) and unknown_keys.are_keys_of_defaults(value):
        return "expected a list: [...]; its keys belong to [defaults]"
    names = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) and path[-1] in {"load", "hosts"} else [value]
    return f"expected a list: {toml.literal(names)}" if isinstance(value, str | int) else "expected a list: [...]"


def _expect_choice(value: Any, expected: str) -> str:
    """Return the message about a value that is none of a list: ``'srun' or 'mpirun'`` in pydantic's words."""
    like = closest_match(str(value), expected.replace("'", "").replace(" or ", ", ").split(", "))
    return f"expected {expected}" + (f"; did you mean {toml.literal(like)}?" if like else "")


def _expect_text(value: Any, _: tuple[str, ...]) -> str:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return f"expected a text: {toml.literal(' '.join(value))}"
    return "expected a text" + (f", in quotes: {toml.literal(str(value))}" if isinstance(value, int | float) else "")


def _expect_table(_: Any, path: tuple[str, ...]) -> str:
    return f"expected a table: [{toml.format_key(*path)}], with keys of {', '.join(unknown_keys.valid_keys(path))}"


_EXPECTED: dict[str, Callable[[Any, tuple[str, ...]], str]] = {
    "tuple_type": _expect_list,
    "string_type": _expect_text,
    "missing": lambda *_: "this key is wanted",
    "dataclass_type": _expect_table,
    "dict_type": lambda _, path: f'expected a table: [{toml.format_key(*path)}], with lines NAME = "value"',
    **dict.fromkeys(["int_type", "int_parsing", "int_from_float"], lambda *_: "expected a whole number"),
    **dict.fromkeys(["bool_type", "bool_parsing"], lambda *_: "expected true or false"),
}
"""The expected type of a value, by pydantic's name of the fault."""
