"""Checks what a file says against a record's class, and makes the record.

A record's class is a frozen dataclass. A field without a default must be there, and each one must be of its type's
kind; keys that the class does not know are left out, except by the field ``said: Said``, which has all keys.
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
    """In seconds since 1970."""
    Seconds: TypeAlias = float
    ProcessStart: TypeAlias = float | Literal[False] | None
    SchedulerName: TypeAlias = str
    Plain: TypeAlias = str | float | None
    Pairs: TypeAlias = Sequence[tuple[str, str]]
    Object: TypeAlias = Mapping[str, Any]
    Said: TypeAlias = Mapping[str, Any]

Record = TypeVar("Record")

LATEST = 1e11
"""Seconds since 1970, beyond which nobody has a calendar."""


class Kind(NamedTuple):
    """What a value must be.

    Attributes:
        words: It, in words.
        fits: Returns whether a value is so.
    """

    words: str
    fits: Callable[[Any], bool]


Table = Mapping[str, "Kind | Table"]
"""Keys and what their values must be; a key with ``?`` behind it may be missing."""


_ID = re.compile(r"\d{1,18}(_\d{1,9})?", re.ASCII)


def _number(value: object, low: float = -1e300, high: float = 1e300) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _time(value: object) -> bool:
    return _number(value, 0, LATEST)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def _count(value: object) -> bool:
    return isinstance(value, int) and _whole(value) and value >= 0


def _text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _or_null(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _list(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _pair(value: object) -> bool:
    return _list(value, _text) and isinstance(value, list) and len(value) == 2


def _point(value: object) -> bool:
    return _list(value, _or_null(_number))


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


def _task(value: object) -> bool:
    return isinstance(value, dict) and _list(value.get("values"), _pair) and _list(value.get("argv"), _text)


_OF_TYPES: dict[str, Kind | Table] = {
    "str": Kind("a text", _text),
    "str | None": Kind("a text or null", _or_null(_text)),
    "Sequence[str]": Kind("a list of texts", lambda value: _list(value, _text)),
    "Pairs": Kind("a list of names and values", lambda value: _list(value, _pair)),
    "Sequence[RecordedTask]": Kind("a list of tasks", lambda value: _list(value, _task)),
    "JobId": Kind("a job id", lambda value: isinstance(value, str) and bool(_ID.fullmatch(value))),
    "SchedulerName": Kind("slurm or local", lambda value: value in ("slurm", "local")),
    "Time": Kind("a time", _time),
    "Time | None": Kind("a time or null", _or_null(_time)),
    "Seconds": Kind("a number of seconds", _time),
    "float": Kind("a number", _number),
    "float | None": Kind("a number or null", _or_null(_number)),
    "ProcessStart": Kind("a number or null", _or_null(_number)),
    "int": Kind("a whole number", _whole),
    "int | None": Kind("a whole number or null", _or_null(_count)),
    "bool": Kind("true or false", lambda value: isinstance(value, bool)),
    "Plain": Kind("a number, a text or null", lambda value: not isinstance(value, dict | list)),
    "Object": {},
    "Object | None": Kind("an object or null", lambda value: value is None or isinstance(value, dict)),
    "Sequence[Any] | None": Kind("a list or null", lambda value: value is None or isinstance(value, list)),
    "dict[str, str]": Kind("an object of texts", _texts),
    "list[int]": Kind("a list of whole numbers", lambda value: _list(value, _whole)),
    "list[list[float | None]]": Kind("a list of points", lambda value: _list(value, _point)),
}


class _Layout(NamedTuple):
    """How a record is made of an object.

    Attributes:
        table: What the object's values must be.
        values: The fields that take a value of the object, and what makes a field's value of it where that differs.
        whole: Whether the field ``said`` takes all of it.
    """

    table: Table
    values: Mapping[str, Callable[[Any], Any] | None]
    whole: bool


_LAYOUTS: dict[type, _Layout] = {}


def _layout(model: Any) -> _Layout:
    if model not in _LAYOUTS:
        known = vars(sys.modules[model.__module__])
        own = [one for one in fields(model) if one.type != "Said"]
        table: dict[str, Kind | Table] = {}
        values: dict[str, Callable[[Any], Any] | None] = {}
        for one in own:
            words, needed = str(one.type), one.default is one.default_factory is MISSING
            kind = _OF_TYPES[words] if words in _OF_TYPES else _layout(known[words]).table
            table[one.name if needed else f"{one.name}?"] = kind
            values[one.name] = _maker(words, known)
        _LAYOUTS[model] = _Layout(table, values, len(own) < len(fields(model)))
    return _LAYOUTS[model]


def _maker(words: str, known: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """Return what makes a field's value of what a file says; None where it is that.

    Args:
        words: The field's type.
        known: What the module of its class defines.
    """
    if words == "Pairs":
        return lambda value: [tuple(one) for one in value]
    inner = known.get(words.removeprefix("Sequence[").removesuffix("]"))
    if not (isinstance(inner, type) and is_dataclass(inner)):
        return None
    return (lambda value: _made(inner, value)) if words in known else lambda value: [_made(inner, one) for one in value]


def parsed_as(model: type[Record], value: object) -> Record:
    """Return a record.

    Args:
        model: Its class.
        value: What a file says.

    Raises:
        ValueError: It is not as it must be; with words for why.
    """
    return _made(model, _checked(value, _layout(model).table))


def parsed_in_part(model: type[Record], value: object) -> Record:
    """Return a record; what need not be there, and is not of its kind, counts as not there.

    Args:
        model: Its class.
        value: What a file says.

    Raises:
        ValueError: What must be there is not as it must be; with words for why.
    """
    table = _layout(model).table
    said = _checked(value, {key: kind for key, kind in table.items() if not key.endswith("?")})
    odd = {key.removesuffix("?") for key, kind in table.items() if _fault(said, {key: kind})}
    return _made(model, {key: one for key, one in said.items() if key not in odd})


def _made(model: type[Record], said: dict[str, Any]) -> Record:
    _, values, whole = _layout(model)
    own = {name: make(said[name]) if make else said[name] for name, make in values.items() if name in said}
    return model(**own, **({"said": said} if whole else {}))


def _checked(value: object, table: Table) -> dict[str, Any]:
    """Return what is an object, and has what it must have; else raise ValueError."""
    if why := _fault(value, table):
        raise ValueError(why)
    return cast("dict[str, Any]", value)


def _fault(value: object, table: Table) -> str | None:
    """Return what is wrong with an object, in words; None where nothing is."""
    if not isinstance(value, dict):
        return f"{_shown(value)} is no object"
    for key, kind in table.items():
        name = key.removesuffix("?")
        if name not in value:
            if name == key:
                return f"it has no {name}"
        elif not isinstance(kind, Kind):
            if why := _fault(value[name], kind):
                return f"{name}: {why}"
        elif not kind.fits(value[name]):
            return f"{name} is {_shown(value[name])}, not {kind.words}"
    return None


def _shown(value: Any) -> str:
    try:
        words = json.dumps(value)
    except (ValueError, RecursionError):
        words = str(type(value))
    return words if len(words) <= 40 else f"{words[:40]} ..."
