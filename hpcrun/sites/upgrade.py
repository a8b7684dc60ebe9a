"""Rewriting the deprecated keys of a site file; comments, order and all else stay."""

from __future__ import annotations

import re
import tomllib
from itertools import count
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.sites import find, toml, versions
from hpcrun.sites.lines import line_of, statements

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.sites.versions import Key


def upgraded(file: Path) -> str:
    """Return a site file's text with the keys of today; the same text where it has no others.

    Args:
        file: The file.

    Raises:
        HpcrunError: A key stands so that changing it is a person's work; names file and line.
    """
    text = file.read_text()
    wanted = versions.modern(find.read(file))
    for _, old, new in versions.moves(tomllib.loads(text)):
        changed = _changed(text, old, new)
        values = _values(changed)
        if versions.modern(values) != wanted or old in [key for _, key, _ in versions.moves(values)]:
            what = f"write {toml.name(*new)} there" if new else "remove it"
            message = (
                f"{file}:{line_of(text, old)}: {toml.name(*old)} cannot be changed without changing more than that"
            )
            raise HpcrunError(message, hint=f"{what} by hand")
        text = changed
    return text


def _values(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def _changed(text: str, old: Key, new: Key | None) -> str:
    """Return a text in which one key has another name, or is not there any more."""
    lines, found = text.splitlines(keepends=True), list(statements(text))
    begin = next(
        (one for one in found if one[2] and old[: len(one[1]) + len(one[2])] == (*one[1], *one[2])), None
    )  # fmt: skip
    if not begin:
        return _headers(lines, found, old, new)
    start, own, name = begin[0] - 1, begin[1], begin[2]
    end = _end(lines, start)
    statement = "".join(lines[start:end])
    lines[start:end] = [""] * (end - start)  # so that all others keep their numbers
    if (*own, *name) != old:
        lines[start] = _within(statement, old, new)
    elif new:
        headers = {table: number for number, table, name in reversed(found) if not name}
        key, _, value = statement.partition("=")
        indent = key[: len(key) - len(key.lstrip())]
        if new[:-1] != own and new[:-1] in headers:  # there is such a table already: the key goes there
            lines.insert(headers[new[:-1]], f"{toml.name(new[-1])} ={value}")
        elif new[: len(own)] == own:
            lines[start] = f"{indent}{toml.name(*new[len(own) :])} ={value}"
        else:
            lines.insert(min(headers.values()) - 1, f"{toml.name(*new)} ={value}")
    return "".join(lines)


def _end(lines: list[str], start: int) -> int:
    """Return the line after the statement that begins on a line: a value may go on for several."""
    for end in count(start + 1):
        if end >= len(lines) or _values("".join(lines[start:end])):
            return end
    raise AssertionError


def _within(statement: str, old: Key, new: Key | None) -> str:
    """Rename a key of a table in braces, such as ``mpi = { library = "mpich" }``."""
    if not new or new[:-1] != old[:-1]:
        return statement
    key = rf"([{{,]\s*){re.escape(toml.name(old[-1]))}(\s*=)"
    return re.sub(key, rf"\g<1>{toml.name(new[-1])}\g<2>", statement, count=1)


def _headers(lines: list[str], found: list[tuple[int, Key, Key]], old: Key, new: Key | None) -> str:
    """Rename a table wherever its name is in a header, such as ``[old]`` and ``[old.below]``."""
    for number, table, name in found:
        if new and not name and table[: len(old)] == old:
            after = lines[number - 1].rpartition("]")[2]
            lines[number - 1] = f"[{toml.name(*new, *table[len(old) :])}]{after}"
    return "".join(lines)
