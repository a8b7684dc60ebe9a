"""Formatting of values as TOML, which the standard library can only parse."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hpcrun.sites.partition import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 60
"""Width in columns: comments after shorter lines are aligned, and longer lists have one line per element."""


def literal(value: Any) -> str:
    """Format a string, number, boolean, list or table as a TOML value."""
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{format_key(key)} = {literal(one)}" for key, one in value.items()) + " }"
            if value
            else "{}"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    # TOML's basic strings are JSON strings, except that they cannot contain DEL
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def format_key(*key: str) -> str:
    """Format a key path as a dotted TOML key, such as ``partitions."a b".max_nodes``."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else literal(part) for part in key)


def format_document(values: Mapping[tuple[str, ...], Any], comments: Mapping[tuple[str, ...], str]) -> str:
    """Format values as a TOML document, table by table.

    Args:
        values: The values by key path; an empty table is written as a header without keys.
        comments: Comments by key path, for the end of the line.
    """
    tables: dict[tuple[str, ...], list[tuple[str, str]]] = {(): []}
    for key, value in values.items():
        table = key[: 2 if key[0] in LEVELS else 1] if value == {} or len(key) > 1 else ()
        lines = tables.setdefault(table, [])
        if key != table:
            lines += _format_entry(format_key(*key[len(table) :]), value, comments.get(key, ""))
    return "\n".join(_format_table(table, lines) for table, lines in tables.items() if table or lines)


def _format_entry(key: str, value: Any, comment: str) -> list[tuple[str, str]]:
    line = f"{key} = {literal(value)}"
    if len(line) <= WIDTH or not isinstance(value, list | tuple):
        return [(line, comment)]
    return [(f"{key} = [", comment), *((f"  {literal(one)},", "") for one in value), ("]", "")]


def _format_table(table: tuple[str, ...], lines: list[tuple[str, str]]) -> str:
    width = max([len(line) for line, comment in lines if comment and len(line) <= WIDTH], default=0)
    aligned_lines = [f"{line:{width}}  # {comment}" if comment else line for line, comment in lines]
    return "".join(f"{line}\n" for line in ([f"[{format_key(*table)}]"] if table else []) + aligned_lines)
