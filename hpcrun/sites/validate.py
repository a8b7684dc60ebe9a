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
from hpcrun.sites.partition import LEVELS
from hpcrun.sites.site_model import Site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_SITE_ADAPTER = TypeAdapter(Site)  # building the adapter takes longer than validating a site


def validate(values: dict[str, Any], origins: dict[tuple[str, ...], Path]) -> Site:
    """Return the site for the merged values of its site files.

    Args:
        values: The merged values, with the site's name.
        origins: The file of each value, by its key path.

    Raises:
        HpcrunError: A value is not valid; the message contains the file, line, key, value, valid values and closest
            valid name of each fault.
    """
    try:
        return _SITE_ADAPTER.validate_python(values)
    except ValidationError as error:
        messages: dict[tuple[str, ...], str] = {}
        for fault in error.errors():  # pydantic reports a fault for each type that a value may have
            if _is_of_other_type(dict(fault)):
                continue
            for check_error in _errors_of_own_checks(dict(fault)):
                key, text = _describe_fault(dict(fault), check_error, origins)
                messages.setdefault(key, text)
        has_unknown_key = any(fault["type"] == _UNKNOWN_KEY for fault in error.errors())
        raise HpcrunError(
            "\n".join(messages.values()), hint=unknown_keys.LIST_KEYS_HINT if has_unknown_key else None
        ) from None


_UNKNOWN_KEY = "unexpected_keyword_argument"
"""Pydantic's error type for an unknown key."""

_LAUNCHER_TABLE, _LAUNCHER_NAME = "CustomLauncher", "function-after[require(), str]"
"""Words that pydantic adds to the path of a fault in the key launcher, because its value may be a table or a text."""


def _is_of_other_type(fault: dict[str, Any]) -> bool:
    """Return whether a fault of the key launcher refers to the type (table or text) that its value does not have."""
    faults_of_other_type = {_LAUNCHER_TABLE: ("dataclass_type", str), _LAUNCHER_NAME: ("string_type", dict)}
    return any((fault["type"], type(fault["input"])) == faults_of_other_type.get(part) for part in fault["loc"])


def _errors_of_own_checks(fault: dict[str, Any]) -> tuple[Any, ...]:
    """Return the errors of hpcrun's checks in a fault; ``(None,)`` if pydantic found the fault."""
    error = fault.get("ctx", {}).get("error")
    return (error, *error.others) if isinstance(error, FieldError) else (error,)


def _describe_fault(
    fault: dict[str, Any], check_error: Any, origins: dict[tuple[str, ...], Path]
) -> tuple[tuple[str, ...], str]:
    """Return the key of the wrong value, and the message about it."""
    path = tuple(str(part) for part in fault["loc"] if part not in {_LAUNCHER_TABLE, _LAUNCHER_NAME})
    value, reason = fault["input"], fault["msg"]
    if isinstance(check_error, FieldError):
        path, value, reason = (*path, *check_error.parents, check_error.field), check_error.value, check_error.reason
        proposed_value = resource_hints.propose_value((*check_error.parents, check_error.field)[0], value)
        if proposed_value and ("defaults" not in path or is_valid(check_error.field, proposed_value)):
            reason += f"; did you mean {toml.literal(proposed_value)}?"
    elif isinstance(check_error, ValueError):
        reason = str(check_error)
    if path == ("launcher",) and value in {"torchrun", "accelerate"}:
        reason = f"this is no launcher of a site: hpcrun submit --launch {value} starts the ranks of a job with it"
    if fault["type"] == "literal_error":
        reason = _expect_choice(value, fault["ctx"]["expected"])
    if wanted := _TYPE_MESSAGES.get(fault["type"]):
        reason = wanted(value, path)
    key = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in origins), path)
    file = origins.get(key)
    location = format_location(file, key) if file else "site file"
    if fault["type"] != _UNKNOWN_KEY:
        return key, f"{location}: {'.'.join(key)} = {value!r}: {reason}"
    return key, f"{location}: {unknown_keys.describe_unknown_key(path, value)}"


def _expect_list(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, dict) and unknown_keys.are_keys_of_defaults(value):
        return "expected a list: [...]; the keys of this table belong to [defaults]"
    names = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) and path[-1] in {"load", "hosts"} else [value]
    return f"expected a list: {toml.literal(names)}" if isinstance(value, str | int) else "expected a list: [...]"


def _expect_choice(value: Any, expected_values: str) -> str:
    """Return the message about a value that is not in a list; pydantic formats the list as ``'srun' or 'mpirun'``."""
    closest_name = closest_match(str(value), expected_values.replace("'", "").replace(" or ", ", ").split(", "))
    return f"expected {expected_values}" + (f"; did you mean {toml.literal(closest_name)}?" if closest_name else "")


def _expect_text(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return f"expected a string: {toml.literal(' '.join(value))}"
    if path == ("python",) and isinstance(value, dict):
        return "expected a string; venv, uv and conda.env belong to the top level: leave out [python]"
    return "expected a string" + (f", in quotes: {toml.literal(str(value))}" if isinstance(value, int | float) else "")


_MAIN_KEYS = {
    "modules": "load",
    "conda": "env",
    "container": "image",
    "mpi": "library",
    "gpu": "type",
    "cuda": "data_dir",
}
"""The key that users mean if they give a value in place of a table, by table."""


def _expect_table(value: Any, path: tuple[str, ...]) -> str:
    if path[-1] in _MAIN_KEYS and isinstance(value, str | list):
        content = [value] if path[-1] == "modules" and isinstance(value, str) else value
        return f"expected a table: {toml.format_key(*path)}.{_MAIN_KEYS[path[-1]]} = {toml.literal(content)}"
    return f"expected a table: [{toml.format_key(*path)}], with keys of {', '.join(unknown_keys.valid_keys(path))}"


def _expect_tables(value: Any, path: tuple[str, ...]) -> str:
    names = [value] if isinstance(value, str) else value
    if path[-1] in LEVELS and isinstance(names, list) and all(isinstance(name, str) for name in names):
        tables = " ".join(f"[{toml.format_key(*path, name)}]" for name in names)
        return f"expected a table for each: {tables or '[partitions.NAME]'}, with lines such as max_nodes = 4"
    return f'expected a table: [{toml.format_key(*path)}], with lines NAME = "value"'


_TYPE_MESSAGES: dict[str, Callable[[Any, tuple[str, ...]], str]] = {
    "tuple_type": _expect_list,
    "string_type": _expect_text,
    "missing": lambda *_: "this key is wanted",
    "dataclass_type": _expect_table,
    "dict_type": _expect_tables,
    **dict.fromkeys(["int_type", "int_parsing", "int_from_float"], lambda *_: "expected a whole number"),
    **dict.fromkeys(["bool_type", "bool_parsing"], lambda *_: "expected true or false"),
}
"""Functions that format the message about a wrong type, by pydantic's error type."""
