"""Values as TOML (the standard library reads TOML, and writes none)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 60
"""Comments stand in one column, where lines are not longer than this; a longer list has a line for each element."""


def literal(value: Any) -> str:
    """Return a text, number, truth value, list or table as one TOML value."""
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
    # TOML's basic strings are JSON's, but that they cannot hold DEL
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def format_key(*key: str) -> str:
    """Return a key's path as TOML spells it, such as ``partitions."a b".max_nodes``."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else literal(part) for part in key)


def format_document(values: Mapping[tuple[str, ...], Any], comments: Mapping[tuple[str, ...], str]) -> str:
    """Return values as a TOML text, table by table.

    Args:
        values: The values by their keys' paths; an empty table is one that is named, and has nothing in it.
        comments: What to say of some of them, at the end of their lines.
    """
    tables: dict[tuple[str, ...], list[tuple[str, str]]] = {(): []}
    for key, value in values.items():
        table = key[: 2 if key[0] in {"partitions", "qos"} else 1] if value == {} or len(key) > 1 else ()
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
    shown = [f"{line:{width}}  # {comment}" if comment else line for line, comment in lines]
    return "".join(f"{line}\n" for line in ([f"[{format_key(*table)}]"] if table else []) + shown)
