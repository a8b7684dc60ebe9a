"""What is read back from run directories and the index: the only place where such a file is opened, and believed.

A record may be another version's, another program's or another user's, half written, or no file at all. So it must be
a regular file of a sane size, and each of its values that a command relies on must be of the kind that it relies on;
else `BadRecordError` names the file and what is wrong with it, and the other runs go on without it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from hpcrun.jobs.kinds import parsed_as, parsed_in_part

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.kinds import Record

MOST_BYTES = 64 << 20
"""The longest training writes less than that of itself."""

MOST_DEPTH = 30
TAIL_BYTES = 1 << 16


class BadRecordError(Exception):
    """A file of a run that cannot be used.

    Args:
        file: The file.
        why: What is wrong with it, in words that follow its name.
    """

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"{file} {why}")
        self.file = file
        self.why = why


Guard = Callable[["Path", str, os.stat_result], str | None]
"""Returns why a file's text, of which the third says whose it was when it was read, must not be acted on."""


@contextmanager
def opened(file: Path, *, links: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that must be a regular one: another kind would hang, or have no end.

    Args:
        file: The file.
        links: Whether it may be a link to one.

    Raises:
        FileNotFoundError: It is not there.
        BadRecordError: It is no such file, or cannot be opened.
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


def text(file: Path, errors: str = "surrogateescape", guard: Guard | None = None) -> str:
    """Return a file's text.

    Args:
        file: The file.
        errors: What becomes of bytes that are no UTF-8, as in `open`.
        guard: Whether what was read, and no other file of its name, may be acted on.

    Raises:
        FileNotFoundError: It is not there.
        BadRecordError: It cannot be read, is too large, or must not be acted on.
    """
    with opened(file, links=guard is None) as stream:
        status = os.fstat(stream.fileno())
        if status.st_size > MOST_BYTES:
            raise BadRecordError(file, f"has {status.st_size / 1e6:,.0f} MB, and {MOST_BYTES / 1e6:,.0f} are the most")
        content = stream.read(MOST_BYTES).decode(errors=errors)
    if guard and (why := guard(file, content, status)):
        raise BadRecordError(file, f"is not used: {why}")
    return content


def tail(file: Path, size: int = TAIL_BYTES) -> str:
    """Return the end of a file, whole lines only; nothing where it cannot be read.

    Args:
        file: The file.
        size: How many bytes of it.
    """
    try:
        with opened(file) as stream:
            length = stream.seek(0, os.SEEK_END)
            stream.seek(max(length - size, 0))
            data = stream.read(size)
    except (FileNotFoundError, BadRecordError):
        return ""
    return (data.partition(b"\n")[2] if length > size else data).decode(errors="replace")


def read(file: Path, model: type[Record], guard: Guard | None = None, *, in_part: bool = False) -> Record | None:
    """Return the record in a file; None where it is not there, or blank, which keeps the room for one.

    Args:
        file: The file.
        model: The record's class.
        guard: See `text`.
        in_part: Whether what need not be there counts as not there, where it is not of its kind.

    Raises:
        BadRecordError: It cannot be read, or has something else.
    """
    try:
        content = text(file, guard=guard)
    except FileNotFoundError:
        return None
    if not content.strip():
        return None
    try:
        value = parsed(content)
    except ValueError as error:
        raise BadRecordError(file, str(error)) from None
    try:
        return parsed_in_part(model, value) if in_part else parsed_as(model, value)
    except ValueError as error:
        raise BadRecordError(file, f"is not as it was written: {error}") from None


def lines(file: Path, model: type[Record], *, last: bool = False, guard: Guard | None = None) -> Iterator[Record]:
    """Yield the records that a file has on its lines, the last first; lines that are no objects are half written.

    Args:
        file: The file.
        model: The records' class.
        last: Whether only the file's end is looked at.
        guard: See `text`; for the whole file.

    Raises:
        BadRecordError: It cannot be read, or an object has something else.
    """
    try:
        content = tail(file) if last and _is_file(file) else text(file, "replace", guard)
    except FileNotFoundError:
        return
    for line in reversed(content.split("\n")):
        try:
            value = parsed(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            try:
                yield parsed_as(model, value)
            except ValueError as error:
                raise BadRecordError(file, f"is not as it was written: {error}") from None


def _is_file(file: Path) -> bool:
    with opened(file):
        return True


def parsed(content: str) -> Any:
    """Return a JSON text's value, with null for what is no finite number.

    Raises:
        ValueError: It is none, or nested too deeply; with words that follow a file's name.
    """
    try:
        value = json.loads(content, parse_constant=lambda _: None, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError:
        raise ValueError("has no whole JSON value") from None
    if _depth(value) > MOST_DEPTH:
        raise ValueError("is nested too deeply")
    return value


def parsed_text(model: type[Record], content: str) -> Record:
    """Return the record that a JSON text is.

    Raises:
        ValueError: It is none; with words for why.
    """
    return parsed_as(model, parsed(content))


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if abs(value) < float("inf") else None


def _whole(digits: str) -> int | float | None:
    return int(digits) if len(digits) < 19 else _finite(digits)


def _depth(value: Any) -> int:
    deepest, todo = 0, [(value, 1)]
    while todo:
        one, depth = todo.pop()
        deepest = max(deepest, depth)
        if depth > MOST_DEPTH:
            break
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        todo += [(each, depth + 1) for each in inner if isinstance(each, dict | list)]
    return deepest
