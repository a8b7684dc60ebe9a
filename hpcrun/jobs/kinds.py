"""What values of records must be: kinds of them, tables of kinds, and classes whose fields' types name kinds.

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


def _number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def _or_null(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _list(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _pair(value: object) -> bool:
    return _list(value, _text) and isinstance(value, list) and len(value) == 2


def _list_or_null(value: object) -> bool:
    return value is None or isinstance(value, list)


def _task(value: object) -> bool:
    return isinstance(value, dict) and _list(value.get("values"), _pair) and _list(value.get("argv"), _text)


ANY = Kind("anything", lambda _: True)
TEXT = Kind("a text", _text)
TEXT_OR_NULL = Kind("a text or null", _or_null(_text))
TEXTS = Kind("a list of texts", lambda value: _list(value, _text))
PAIRS = Kind("a list of names and values", lambda value: _list(value, _pair))
TASKS = Kind("a list of tasks", lambda value: _list(value, _task))
JOB_ID = Kind("a job id", lambda value: isinstance(value, str) and bool(_ID.fullmatch(value)))
TIME = Kind("a time", lambda value: _number(value, 0, LATEST))
TIME_OR_NULL = Kind("a time or null", _or_null(TIME.fits))
NUMBER = Kind("a number", lambda value: _number(value, -1e300, 1e300))
NUMBER_OR_NULL = Kind("a number or null", _or_null(NUMBER.fits))
SECONDS = Kind("a number of seconds", lambda value: _number(value, 0, LATEST))
WHOLE = Kind("a whole number", _whole)
COUNT_OR_NULL = Kind("a whole number or null", _or_null(lambda value: _whole(value) and value >= 0))  # type: ignore[operator]
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT: Table = {}
OBJECT_OR_NULL = Kind("an object or null", lambda value: value is None or isinstance(value, dict))
SCHEDULER = Kind("slurm or local", lambda value: value in ("slurm", "local"))
NULL = Kind("null", lambda value: value is None)
PLAIN = Kind("a number, a text or null", lambda value: not isinstance(value, dict | list))

RESULT: Table = {"versions?": OBJECT_OR_NULL}
PROVENANCE: Table = {"values?": OBJECT, "notes?": TEXTS, "changed?": Kind("a list or null", _list_or_null)}
NOTES: Table = {"format": WHOLE, "runs": OBJECT}

_OF_TYPES: dict[str, Kind | Table] = {
    "str": TEXT, "str | None": TEXT_OR_NULL, "int": WHOLE, "int | None": COUNT_OR_NULL, "float": NUMBER, "bool": FLAG,
    "float | None": NUMBER_OR_NULL, "Sequence[str]": TEXTS, "JobId": JOB_ID, "Time": TIME, "Time | None": TIME_OR_NULL,
    "Seconds": SECONDS, "ProcessStart": NUMBER_OR_NULL, "SchedulerName": SCHEDULER, "Plain": PLAIN, "Pairs": PAIRS,
    "Sequence[RecordedTask]": TASKS, "Object": OBJECT, "Object | None": OBJECT_OR_NULL,
    "list[int]": Kind("a list of whole numbers", lambda value: _list(value, _whole)),
    "list[list[float | None]]": Kind(
        "a list of points", lambda value: _list(value, lambda one: _list(one, NUMBER_OR_NULL.fits))
    ),
    "dict[str, Any]": OBJECT, "dict[str, str]": Kind(
        "an object of texts", lambda value: isinstance(value, dict) and all(map(_text, value.values()))
    ),
}  # fmt: skip


def of_class(model: type) -> Table:
    """Return the table of a record's class.

    Args:
        model: The class.
    """
    return _layout(model).table


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
            kind = _OF_TYPES[words] if words in _OF_TYPES else of_class(known[words])
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


def parsed_object(value: object, table: Table) -> dict[str, Any]:
    """Return an object.

    Args:
        value: What a file says.
        table: What its values must be.

    Raises:
        ValueError: It is not as it must be; with words for why.
    """
    if why := wrong(value, table):
        raise ValueError(why)
    return cast("dict[str, Any]", value)


def parsed_as(model: type[Record], value: object) -> Record:
    """Return a record.

    Args:
        model: Its class.
        value: What a file says.

    Raises:
        ValueError: It is not as it must be; with words for why.
    """
    return _made(model, parsed_object(value, of_class(model)))


def parsed_in_part(model: type[Record], value: object) -> Record:
    """Return a record; what need not be there, and is not of its kind, counts as not there.

    Args:
        model: Its class.
        value: What a file says.

    Raises:
        ValueError: What must be there is not as it must be; with words for why.
    """
    table = of_class(model)
    said = parsed_object(value, {key: kind for key, kind in table.items() if not key.endswith("?")})
    odd = {key.removesuffix("?") for key, kind in table.items() if wrong(said, {key: kind})}
    return _made(model, {key: one for key, one in said.items() if key not in odd})


def _made(model: type[Record], said: dict[str, Any]) -> Record:
    _, values, whole = _layout(model)
    own = {name: make(said[name]) if make else said[name] for name, make in values.items() if name in said}
    return model(**own, **({"said": said} if whole else {}))


def wrong(value: Any, table: Table) -> str | None:
    """Return what is wrong with an object, in words; None where nothing is.

    Args:
        value: What should be one.
        table: What its values must be.
    """
    if not isinstance(value, dict):
        return f"{_shown(value)} is no object"
    for key, kind in table.items():
        name = key.removesuffix("?")
        if name not in value:
            if name == key:
                return f"it has no {name}"
        elif not isinstance(kind, Kind):
            if why := wrong(value[name], kind):
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
