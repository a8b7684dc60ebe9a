"""Line numbers of keys in a TOML text, which tomllib does not report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Key = tuple[str, ...]
"""The path of a key in a TOML text, such as ``("mpi", "library")``."""

_HEADER = r"\s*\[\[?\s*(?P<key>[^\[\]]+?)\s*\]\]?\s*(#.*)?$"
_ASSIGNMENT = r"\s*(?P<key>(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="
_KEY_PART = r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)"


def _split_key(dotted_key: str) -> tuple[str, ...]:
    return tuple(
        next(part for part in match.groups() if part is not None) for match in re.finditer(_KEY_PART, dotted_key)
    )


def iterate_statements(text: str) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Yield the line number (from 1), the table and the key of each statement of a TOML text.

    The key of a table header is empty.

    Args:
        text: A valid TOML text.
    """
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(_HEADER, line):
            table = _split_key(header["key"])
            yield number, table, ()
        elif assignment := re.match(_ASSIGNMENT, line):
            yield number, table, _split_key(assignment["key"])


def find_line(text: str, key: tuple[str, ...]) -> int:
    """Return the line (from 1) that sets a key; else the line of the innermost table for the key; else 1.

    Args:
        text: A valid TOML text.
        key: The key's path, such as ``("partitions", "gpu", "max_nodes")``.
    """
    line_number, depth = 1, 0
    for number, table, name in iterate_statements(text):
        path = (*table, *name)[: len(key)]  # an implicit table begins at its first key
        if key[: len(path)] == path and len(path) > depth:
            line_number, depth = number, len(path)
    return line_number


def format_location(file: Path, key: Key) -> str:
    """Return ``file:line`` of a key."""
    return f"{file}:{find_line(file.read_text(), key)}"
