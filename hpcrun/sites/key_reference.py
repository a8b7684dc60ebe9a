"""The reference page of all keys of site files, generated from their JSON Schema."""

from __future__ import annotations

from typing import Any

from hpcrun.sites import toml
from hpcrun.sites.schema import site_file_schema

_HEAD = """\
# Keys of site files

All keys of a site file. [sites.md](sites.md) shows their use, and `hpcrun site check` reports unknown keys.
A key without a default is not set. `hpcrun site schema --markdown` generates this page.
"""

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true`, `false`"}


def render_page() -> str:
    """Return the page, as Markdown."""
    schema = site_file_schema()
    text = f"{_HEAD}\n## Top level\n{_format_rows(schema)}"
    names: dict[str, str] = {}
    for key, facts in schema["properties"].items():
        if table := _table_definition(facts):
            name = f"`[{key}.NAME]`" if "additionalProperties" in facts else f"`[{key}]`"
            text += f"\n## {name}\n\n{facts['description']}\n"
            same = names.setdefault(table, name)
            text += (
                _format_rows(schema["definitions"][table]) if same == name else f"\nIt has the same keys as {same}.\n"
            )
    return text


def _format_rows(table: dict[str, Any]) -> str:
    head = "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
    return head + "".join(_format_row(key, facts) for key, facts in table["properties"].items())


def _table_definition(facts: dict[str, Any]) -> str | None:
    """Return the name of the schema definition of a table key."""
    kinds = [*facts.get("allOf", ()), *facts.get("anyOf", ()), facts.get("additionalProperties", {})]
    return next((kind["$ref"].rpartition("/")[2] for kind in kinds if "$ref" in kind), None)


def _format_row(key: str, facts: dict[str, Any]) -> str:
    default = f"`{toml.literal(facts['default'])}`" if facts.get("default") not in (None, "", []) else ""
    meaning = facts["description"].replace("|", "\\|").replace("*", "\\*")
    return f"| `{key}` | {_format_type(facts)} | {default} | {meaning} |\n"


def _format_type(facts: dict[str, Any]) -> str:
    if "enum" in facts:
        return ", ".join(f"`{toml.literal(value)}`" for value in facts["enum"])
    if "anyOf" in facts:
        return " or ".join(map(_format_type, facts["anyOf"]))
    if facts.get("type") == "array":
        return f"list of {_plural(facts['items'])}"
    if "$ref" in facts or _table_definition(facts):
        return "tables" if "additionalProperties" in facts else "table"
    if facts.get("type") == "object":
        return f"table of {_plural(facts['additionalProperties'])}"
    return _TYPES[facts["type"]]


def _plural(facts: dict[str, Any]) -> str:
    if "anyOf" in facts:
        return " or ".join(map(_plural, facts["anyOf"]))
    one = _format_type(facts)
    return one.replace("list", "lists", 1) if one.startswith("list") else f"{one}s"
