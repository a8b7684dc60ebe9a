"""Safe reading of the files in run directories and of the index.

Another version, program or user may have written a record; it may be incomplete, or not be a regular file. A record
must be a regular file of limited size, and each value that a command uses must have the expected type; otherwise
`BadRecordError` names the file and the error, and commands continue with the other runs.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from hpcrun.jobs.record_validation import parse_partial_record, parse_record

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.record_validation import Record

MAX_BYTES = 64 << 20
"""Maximum size of a record in bytes; even long training runs write less."""

MAX_DEPTH = 30
TAIL_BYTES = 1 << 16
GROWTH_BYTES = 1 << 12
"""Maximum number of bytes by which a file may grow between the query of its size and the read."""


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


TrustCheck = Callable[["Path", str, os.stat_result], str | None]
"""A trust check of a file, its text and its stat result; returns the reason why the file is not trusted, or None."""


@contextmanager
def open_regular_file(file: Path, *, follow_links: bool = True) -> Iterator[IO[bytes]]:
    """Open a regular file, and refuse other types: reading a pipe may hang, and a device may be endless.

    Args:
        file: The file.
        follow_links: Whether the file may be a symbolic link to a regular file.

    Raises:
        FileNotFoundError: The file does not exist.
        BadRecordError: The file is not a regular file, or cannot be opened.
    """
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(file, flags if follow_links else flags | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(file) from None
    except OSError as error:
        raise BadRecordError(file, f"cannot be opened: {error.strerror}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        file_type = "a directory" if stat.S_ISDIR(mode) else "a pipe, device or socket"
        raise BadRecordError(file, f"is {file_type}, not a file")
    with os.fdopen(descriptor, "rb") as stream:
        try:
            yield stream
        except OSError as error:
            raise BadRecordError(file, f"cannot be read: {error.strerror}") from None


def read_text(file: Path, errors: str = "surrogateescape", trust_check: TrustCheck | None = None) -> str:
    """Return a file's text.

    Args:
        file: The file.
        errors: How to decode invalid UTF-8, as in `open`.
        trust_check: The trust check of the file and its text.

    Raises:
        FileNotFoundError: The file does not exist.
        BadRecordError: The file cannot be read, is too large, or is not trusted.
    """
    with open_regular_file(file, follow_links=trust_check is None) as stream:
        file_stat = os.fstat(stream.fileno())
        if file_stat.st_size > MAX_BYTES:
            raise BadRecordError(
                file, f"has {file_stat.st_size / 1e6:,.0f} MB; the maximum is {MAX_BYTES / 1e6:,.0f} MB"
            )
        content = stream.read(file_stat.st_size + GROWTH_BYTES).decode(errors=errors)
    if trust_check and (reason := trust_check(file, content, file_stat)):
        raise BadRecordError(file, f"is not used: {reason}")
    return content


def read_tail(file: Path, size: int = TAIL_BYTES) -> str:
    """Return the last complete lines of a file; an empty text if the file cannot be read.

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
    file: Path, record_class: type[Record], trust_check: TrustCheck | None = None, *, skip_wrong_types: bool = False
) -> Record | None:
    """Read the record in a file; return None if the file is missing, or is blank because it only reserves disk space.

    Args:
        file: The file.
        record_class: The class of the record.
        trust_check: The trust check, see `read_text`.
        skip_wrong_types: Whether to ignore optional values of a wrong type.

    Raises:
        BadRecordError: The file cannot be read, or is invalid.
    """
    try:
        content = read_text(file, trust_check=trust_check)
    except FileNotFoundError:
        return None
    if not content.strip():
        return None
    try:
        value = parse_json(content)
    except ValueError as error:
        raise BadRecordError(file, str(error)) from None
    try:
        return parse_partial_record(record_class, value) if skip_wrong_types else parse_record(record_class, value)
    except ValueError as error:
        raise BadRecordError(file, f"is invalid: {error}") from None


def read_lines(
    file: Path, record_class: type[Record], *, end_only: bool = False, trust_check: TrustCheck | None = None
) -> Iterator[Record]:
    """Yield the records in a file of JSON lines, the last first; skip incomplete lines.

    Args:
        file: The file.
        record_class: The record class.
        end_only: Whether to read only the last `TAIL_BYTES` of the file.
        trust_check: The trust check of the whole file, see `read_text`.

    Raises:
        BadRecordError: The file cannot be read, or an object is invalid.
    """
    try:
        content = _read_end(file, TAIL_BYTES) if end_only else read_text(file, "replace", trust_check)
    except FileNotFoundError:
        return
    for line in reversed(content.split("\n")):
        try:
            value = parse_json(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            try:
                yield parse_record(record_class, value)
            except ValueError as error:
                raise BadRecordError(file, f"is invalid: {error}") from None


def parse_json(content: str) -> Any:
    """Parse a JSON text, with null for NaN and infinite numbers.

    Raises:
        ValueError: The text is invalid, or nested too deeply; the message is a predicate that follows the file's name.
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


def parse_record_text(record_class: type[Record], content: str) -> Record:
    """Parse a JSON text into a record.

    Raises:
        ValueError: The text is invalid.
    """
    return parse_record(record_class, parse_json(content))


def _parse_float(text: str) -> float | None:
    value = float(text)
    return value if abs(value) < float("inf") else None


def _parse_integer(text: str) -> int | float | None:
    return int(text) if len(text) < 19 else _parse_float(text)


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_parse_float, parse_int=_parse_integer)


def _nesting_depth(value: Any) -> int:
    maximum_depth, stack = 0, [(value, 1)]
    while stack:
        item, depth = stack.pop()
        maximum_depth = max(maximum_depth, depth)
        if depth > MAX_DEPTH:
            break
        children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        stack += [(child, depth + 1) for child in children if isinstance(child, dict | list)]
    return maximum_depth
