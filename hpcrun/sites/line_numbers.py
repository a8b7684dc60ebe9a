"""The line of a key in a TOML text (tomllib, which has checked the text before, tells no lines)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Key = tuple[str, ...]
"""A key's path in a TOML text, such as ``("mpi", "library")``."""

_HEADER = re.compile(r"\s*\[\[?\s*(?P<key>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT = re.compile(
    r"\s*(?P<key>(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="
)
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


def _split_key(dotted: str) -> tuple[str, ...]:
    return tuple(next(part for part in match.groups() if part is not None) for match in _PART.finditer(dotted))


def iterate_statements(text: str) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Yield what begins on the lines of a TOML text: the line (from 1), the table, and the key that is set in it.

    Of a table's header the key is empty.

    Args:
        text: A valid TOML text.
    """
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _split_key(header["key"])
            yield number, table, ()
        elif assignment := _ASSIGNMENT.match(line):
            yield number, table, _split_key(assignment["key"])


def find_line(text: str, key: tuple[str, ...]) -> int:
    """Return the line (from 1) where a key is set, else the line of the nearest table around it, else 1.

    Args:
        text: A valid TOML text.
        key: The key's path, such as ``("partitions", "gpu", "max_nodes")``.
    """
    best, depth = 1, 0
    for number, table, name in iterate_statements(text):
        here = (*table, *name)[: len(key)]  # a table that only keys below it make begins with the first of them
        if key[: len(here)] == here and len(here) > depth:
            best, depth = number, len(here)
    return best


def format_location(file: Path, key: Key) -> str:
    """Return ``file:line`` of a key."""
    return f"{file}:{find_line(file.read_text(), key)}"
