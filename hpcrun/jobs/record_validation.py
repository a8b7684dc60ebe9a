"""Validation of JSON objects against record classes, and construction of the records.

A record class is a frozen dataclass. A field without a default is required, and each value must have its field's type.
Unknown keys are ignored; a field ``all_values: AllValues`` holds the whole object, with unknown keys.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal, TypeAlias

    JobId: TypeAlias = str
    Time: TypeAlias = float
    """A time in seconds since 1970."""
    Seconds: TypeAlias = float
    ProcessStart: TypeAlias = float | Literal[False] | None
    PluginName: TypeAlias = str
    Scalar: TypeAlias = str | float | None
    Pairs: TypeAlias = Sequence[tuple[str, str]]
    JsonObject: TypeAlias = Mapping[str, object]
    AllValues: TypeAlias = Mapping[str, object]
    """All values of an object by key, including keys that this version does not know."""

Record = TypeVar("Record")

MAX_TIME = 1e11
"""The latest valid time, in seconds since 1970."""


class ValueType(NamedTuple):
    """A type of JSON values.

    Attributes:
        description: The type's name in error messages.
        accepts: Function that returns whether a value has this type.
    """

    description: str
    accepts: Callable[[Any], bool]


Table = Mapping[str, "ValueType | Table"]
"""The types of the values of an object, by key; a key that ends with ``?`` is optional."""


_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
_ID = re.compile(r"\d{1,18}(_\d{1,9})?", re.ASCII)


def _is_number(value: object, minimum: float = -1e300, maximum: float = 1e300) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and minimum <= value <= maximum


def _is_time(value: object) -> bool:
    return _is_number(value, 0, MAX_TIME)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_integer(value) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _allow_null(accepts: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or accepts(value)


def _is_list(value: object, accepts: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(accepts, value))


def _is_pair(value: object) -> bool:
    return _is_list(value, _is_text) and isinstance(value, list) and len(value) == 2


def _is_curve_point(value: object) -> bool:
    return _is_list(value, _allow_null(_is_number))


def _is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_VALUE_TYPES: dict[str, ValueType | Table] = {
    "str": ValueType("a text", _is_text),
    "str | None": ValueType("a text or null", _allow_null(_is_text)),
    "Sequence[str]": ValueType("a list of texts", lambda value: _is_list(value, _is_text)),
    "tuple[str, ...]": ValueType("a list of texts", lambda value: _is_list(value, _is_text)),
    "Pairs": ValueType("a list of names and values", lambda value: _is_list(value, _is_pair)),
    "JobId": ValueType("a job id", lambda value: isinstance(value, str) and bool(_ID.fullmatch(value))),
    "PluginName": ValueType("the name of a scheduler", lambda value: _is_text(value) and bool(_NAME.fullmatch(value))),
    "Time": ValueType("a time", _is_time),
    "Time | None": ValueType("a time or null", _allow_null(_is_time)),
    "Seconds": ValueType("a number of seconds", _is_time),
    "float": ValueType("a number", _is_number),
    "float | None": ValueType("a number or null", _allow_null(_is_number)),
    "ProcessStart": ValueType("a number or null", _allow_null(_is_number)),
    "int": ValueType("a whole number", _is_integer),
    "int | None": ValueType("a whole number or null", _allow_null(_is_count)),
    "bool": ValueType("true or false", lambda value: isinstance(value, bool)),
    "bool | None": ValueType("true, false or null", _allow_null(lambda value: isinstance(value, bool))),
    "Scalar": ValueType("a number, a text or null", lambda value: not isinstance(value, dict | list)),
    "JsonObject": {},
    "JsonObject | None": ValueType("an object or null", lambda value: value is None or isinstance(value, dict)),
    "Sequence[str] | None": ValueType("a list of texts or null", _allow_null(lambda value: _is_list(value, _is_text))),
    "Mapping[str, float]": ValueType(
        "an object of numbers", lambda value: isinstance(value, dict) and all(map(_is_number, value.values()))
    ),
    "dict[str, str]": ValueType("an object of texts", _is_text_map),
    "list[int]": ValueType("a list of whole numbers", lambda value: _is_list(value, _is_integer)),
    "list[list[float | None]]": ValueType("a list of points", lambda value: _is_list(value, _is_curve_point)),
}


class _Conversion(NamedTuple):
    """Rules that convert a JSON object to a record.

    Attributes:
        table: The types of the object's values.
        converters: For each field of the record, the function that converts its value; None for no conversion.
        keeps_all: Whether the record has a field ``all_values`` for the whole object.
    """

    table: Table
    converters: Mapping[str, Callable[[Any], Any] | None]
    keeps_all: bool


_RECORD_TYPE = re.compile(r"(Sequence\[|Mapping\[str, |)(\w+)(\]| \| None|)")
"""The type of a field that contains records: a record, a record or null, a list of records, or records by key."""

_CONVERSIONS: dict[type, _Conversion] = {}


def _get_conversion(record_class: Any) -> _Conversion:
    if record_class not in _CONVERSIONS:
        definitions = vars(sys.modules[record_class.__module__])
        record_fields = [record_field for record_field in fields(record_class) if record_field.type != "AllValues"]
        table: dict[str, ValueType | Table] = {}
        converters: dict[str, Callable[[Any], Any] | None] = {}
        for record_field in record_fields:
            type_name, is_required = (
                str(record_field.type),
                record_field.default is record_field.default_factory is MISSING,
            )
            table[record_field.name if is_required else f"{record_field.name}?"] = _find_type(type_name, definitions)
            converters[record_field.name] = _find_converter(type_name, definitions)
        _CONVERSIONS[record_class] = _Conversion(table, converters, len(record_fields) < len(fields(record_class)))
    return _CONVERSIONS[record_class]


def _find_record_class(type_name: str, definitions: Mapping[str, Any]) -> tuple[str, Any, str]:
    """Split the text of a field's type into the text before its record class, the class or None, and the rest."""
    match = _RECORD_TYPE.fullmatch(type_name)
    record_class = definitions.get(match[2]) if match else None
    return (match[1], record_class, match[3]) if match and is_dataclass(record_class) else ("", None, "")


def _find_type(type_name: str, definitions: Mapping[str, Any]) -> ValueType | Table:
    if type_name in _VALUE_TYPES:
        return _VALUE_TYPES[type_name]
    prefix, record_class, suffix = _find_record_class(type_name, definitions)
    table = _get_conversion(record_class).table

    def is_valid(value: object) -> bool:
        return _find_error(value, table) is None

    if prefix == "Sequence[":
        return ValueType("a list of valid objects", lambda value: _is_list(value, is_valid))
    if prefix:
        return ValueType("an object whose values are valid objects", lambda value: _has_values(value, is_valid))
    return ValueType("null or a valid object", _allow_null(is_valid)) if suffix else table


def _has_values(value: object, is_valid: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(map(is_valid, value.values()))


def _find_converter(type_name: str, definitions: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """Return a function that converts a JSON value to a field's value; None if the value needs no conversion.

    Args:
        type_name: The field's type.
        definitions: The definitions in the module of the record class.
    """
    if type_name == "Pairs":
        return lambda value: [tuple(item) for item in value]
    if type_name == "tuple[str, ...]":
        return tuple
    prefix, record_class, _ = _find_record_class(type_name, definitions)
    if record_class is None:
        return None
    if prefix == "Sequence[":
        return lambda value: [_build_record(record_class, item) for item in value]
    if prefix:
        return lambda value: {key: _build_record(record_class, item) for key, item in value.items()}
    return lambda value: None if value is None else _build_record(record_class, value)


def parse_record(record_class: type[Record], value: object) -> Record:
    """Validate a JSON value and convert it to a record.

    Args:
        record_class: The record class.
        value: The value from a file.

    Raises:
        ValueError: The value is invalid.
    """
    return _build_record(record_class, _require_valid(value, _get_conversion(record_class).table))


def parse_partial_record(record_class: type[Record], value: object) -> Record:
    """Convert a JSON value to a record, and ignore optional values of a wrong type.

    Args:
        record_class: The record class.
        value: The value from a file.

    Raises:
        ValueError: A required value is invalid.
    """
    table = _get_conversion(record_class).table
    values = _require_valid(value, {key: value_type for key, value_type in table.items() if not key.endswith("?")})
    invalid_keys = {
        key.removesuffix("?") for key, value_type in table.items() if _find_error(values, {key: value_type})
    }
    return _build_record(record_class, {key: item for key, item in values.items() if key not in invalid_keys})


def _build_record(record_class: type[Record], values: dict[str, Any]) -> Record:
    _, converters, keeps_all = _get_conversion(record_class)
    field_values = {
        name: convert(values[name]) if convert else values[name]
        for name, convert in converters.items()
        if name in values
    }
    return record_class(**field_values, **({"all_values": values} if keeps_all else {}))


def _require_valid(value: object, table: Table) -> dict[str, Any]:
    """Return the value if it is a valid object; otherwise raise ValueError."""
    if error_message := _find_error(value, table):
        raise ValueError(error_message)
    return cast("dict[str, Any]", value)


def _find_error(value: object, table: Table) -> str | None:
    """Return the error message for an invalid object; None for a valid one."""
    if not isinstance(value, dict):
        return f"{_abbreviate(value)} is not an object"
    for key, value_type in table.items():
        name = key.removesuffix("?")
        if name not in value:
            if name == key:
                return f"it has no {name}"
        elif not isinstance(value_type, ValueType):
            if error_message := _find_error(value[name], value_type):
                return f"{name}: {error_message}"
        elif not value_type.accepts(value[name]):
            return f"{name} is {_abbreviate(value[name])}, not {value_type.description}"
    return None


def _abbreviate(value: Any) -> str:
    try:
        text = json.dumps(value)
    except (ValueError, RecursionError):
        text = str(type(value))
    return text if len(text) <= 40 else f"{text[:40]} ..."
