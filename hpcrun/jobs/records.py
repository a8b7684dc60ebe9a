"""Safe reading of the files in run directories and of the index.

A record may come from another version, program or user, be half written, or not be a file at all. It must therefore be
a regular file of a limited size, and each value that a command uses must have the expected type; otherwise
`BadRecordError` names the file and the error, and commands continue with the other runs.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from hpcrun.jobs.validation import parse_partial_record, parse_record

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.validation import Record

MAX_BYTES = 64 << 20
"""Upper bound for the size of a record; even long trainings write less."""

MAX_DEPTH = 30
TAIL_BYTES = 1 << 16
GROWTH_BYTES = 1 << 12
"""What a file may grow between the query of its size and the read; a read of `MAX_BYTES` would allocate as much."""


class BadRecordError(Exception):
    """A file of a run is invalid or unreadable.

    Args:
        file: The file.
        why: The error, as a predicate that follows the file's name.
    """

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"{file} {why}")
        self.file = file
        self.why = why


Guard = Callable[["Path", str, os.stat_result], str | None]
"""A trust check: takes a file, its text and its status when it was read; returns why it is not trusted, or None."""


@contextmanager
def open_regular_file(file: Path, *, links: bool = True) -> Iterator[IO[bytes]]:
    """Open a regular file, and refuse others: reading a pipe may hang, a device may never end.

    Args:
        file: The file.
        links: Whether it may be a symbolic link to a regular file.

    Raises:
        FileNotFoundError: It does not exist.
        BadRecordError: It is not a regular file, or cannot be opened.
    """
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        number = os.open(file, flags if links else flags | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(file) from None
    except OSError as error:
        raise BadRecordError(file, f"cannot be opened: {error.strerror}") from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        is_folder = "a directory" if stat.S_ISDIR(mode) else "a pipe, device or socket"
        raise BadRecordError(file, f"is {is_folder}, not a file")
    with os.fdopen(number, "rb") as stream:
        try:
            yield stream
        except OSError as error:
            raise BadRecordError(file, f"cannot be read: {error.strerror}") from None


def read_text(file: Path, errors: str = "surrogateescape", guard: Guard | None = None) -> str:
    """Return a file's text.

    Args:
        file: The file.
        errors: How to decode invalid UTF-8, as in `open`.
        guard: The trust check of what was read.

    Raises:
        FileNotFoundError: It does not exist.
        BadRecordError: It cannot be read, is too large, or is not trusted.
    """
    with open_regular_file(file, links=guard is None) as stream:
        status = os.fstat(stream.fileno())
        if status.st_size > MAX_BYTES:
            raise BadRecordError(file, f"has {status.st_size / 1e6:,.0f} MB; the maximum is {MAX_BYTES / 1e6:,.0f} MB")
        content = stream.read(status.st_size + GROWTH_BYTES).decode(errors=errors)
    if guard and (why := guard(file, content, status)):
        raise BadRecordError(file, f"is not used: {why}")
    return content


def read_tail(file: Path, size: int = TAIL_BYTES) -> str:
    """Return the end of a file, whole lines only; an empty text if it cannot be read.

    Args:
        file: The file.
        size: The number of bytes to read.
    """
    try:
        return _read_end(file, size)
    except (FileNotFoundError, BadRecordError):
        return ""


def _read_end(file: Path, size: int) -> str:
    with open_regular_file(file) as stream:
        length = stream.seek(0, os.SEEK_END)
        stream.seek(max(length - size, 0))
        data = stream.read(size)
    return (data.partition(b"\n")[2] if length > size else data).decode(errors="replace")


def read_record(
    file: Path, model: type[Record], guard: Guard | None = None, *, skip_wrong_types: bool = False
) -> Record | None:
    """Read the record in a file; return None if the file is missing, or blank to preallocate space.

    Args:
        file: The file.
        model: The record's class.
        guard: See `read_text`.
        skip_wrong_types: Whether to ignore optional values of a wrong type.

    Raises:
        BadRecordError: The file cannot be read, or is invalid.
    """
    try:
        content = read_text(file, guard=guard)
    except FileNotFoundError:
        return None
    if not content.strip():
        return None
    try:
        value = parse_json(content)
    except ValueError as error:
        raise BadRecordError(file, str(error)) from None
    try:
        return parse_partial_record(model, value) if skip_wrong_types else parse_record(model, value)
    except ValueError as error:
        raise BadRecordError(file, f"is invalid: {error}") from None


def read_lines(file: Path, model: type[Record], *, last: bool = False, guard: Guard | None = None) -> Iterator[Record]:
    """Yield the records in a file of JSON lines, the last first; skip lines that are half written.

    Args:
        file: The file.
        model: The record class.
        last: Whether to read only the end of the file.
        guard: See `read_text`; checks the whole file.

    Raises:
        BadRecordError: The file cannot be read, or an object is invalid.
    """
    try:
        content = _read_end(file, TAIL_BYTES) if last else read_text(file, "replace", guard)
    except FileNotFoundError:
        return
    for line in reversed(content.split("\n")):
        try:
            value = parse_json(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            try:
                yield parse_record(model, value)
            except ValueError as error:
                raise BadRecordError(file, f"is invalid: {error}") from None


def parse_json(content: str) -> Any:
    """Parse a JSON text, with null for NaN and infinite numbers.

    Raises:
        ValueError: It is invalid, or nested too deeply; the message follows a file's name.
    """
    try:
        value = _DECODER.decode(content)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError:
        raise ValueError("is not valid JSON") from None
    if _nesting_depth(value) > MAX_DEPTH:
        raise ValueError("is nested too deeply")
    return value


def parse_record_text(model: type[Record], content: str) -> Record:
    """Parse a JSON text into a record.

    Raises:
        ValueError: It is invalid.
    """
    return parse_record(model, parse_json(content))


def _parse_float(number: str) -> float | None:
    value = float(number)
    return value if abs(value) < float("inf") else None


def _parse_integer(number: str) -> int | float | None:
    return int(number) if len(number) < 19 else _parse_float(number)


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_parse_float, parse_int=_parse_integer)


def _nesting_depth(value: Any) -> int:
    deepest, todo = 0, [(value, 1)]
    while todo:
        item, depth = todo.pop()
        deepest = max(deepest, depth)
        if depth > MAX_DEPTH:
            break
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        todo += [(child, depth + 1) for child in inner if isinstance(child, dict | list)]
    return deepest
