"""The line of a key in a TOML text (tomllib, which has checked the text before, tells no lines)."""

from __future__ import annotations

import re

_HEADER = re.compile(r"\s*\[\[?\s*(?P<key>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT = re.compile(
    r"\s*(?P<key>(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:\"[^\"]*\"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="
)
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(next(part for part in match.groups() if part is not None) for match in _PART.finditer(dotted))


def line_of(text: str, key: tuple[str, ...]) -> int:
    """Return the line (from 1) where a key is set, else the line of the nearest table around it, else 1.

    Args:
        text: A valid TOML text.
        key: The key's path, such as ``("partitions", "gpu", "max_nodes")``.
    """
    table: tuple[str, ...] = ()
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = here = _parts(header["key"])
        elif assignment := _ASSIGNMENT.match(line):
            here = (*table, *_parts(assignment["key"]))
        else:
            continue
        if key[: len(here)] == here and len(here) > depth:
            best, depth = number, len(here)
    return best
