"""The reference page of all keys of site files, generated from their JSON Schema."""

from __future__ import annotations

from typing import Any

from hpcrun.sites import toml
from hpcrun.sites.schema import site_file_schema

_PAGE_HEADER = """\
# Keys of site files

All keys of a site file. [sites.md](sites.md) shows their use, and `hpcrun site check` reports unknown keys.
A key without a default is not set. `hpcrun site schema --markdown` generates this page.
"""

_TYPE_NAMES = {"string": "string", "integer": "whole number", "number": "number", "boolean": "`true`, `false`"}


def render_page() -> str:
    """Return the reference page as Markdown."""
    schema = site_file_schema()
    text = f"{_PAGE_HEADER}\n## Top level\n{_format_rows(schema)}"
    names_by_definition: dict[str, str] = {}
    for key, facts in schema["properties"].items():
        if table := _table_definition(facts):
            name = f"`[{key}.NAME]`" if "additionalProperties" in facts else f"`[{key}]`"
            text += f"\n## {name}\n\n{facts['description']}\n"
            first_name = names_by_definition.setdefault(table, name)
            text += (
                _format_rows(schema["definitions"][table])
                if first_name == name
                else f"\nIt has the same keys as {first_name}.\n"
            )
    return text


def _format_rows(table_schema: dict[str, Any]) -> str:
    header = "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
    return header + "".join(_format_row(key, facts) for key, facts in table_schema["properties"].items())


def _table_definition(schema: dict[str, Any]) -> str | None:
    """Return the name of the schema definition of a table key."""
    alternatives = [*schema.get("allOf", ()), *schema.get("anyOf", ()), schema.get("additionalProperties", {})]
    return next((kind["$ref"].rpartition("/")[2] for kind in alternatives if "$ref" in kind), None)


def _format_row(key: str, schema: dict[str, Any]) -> str:
    default = f"`{toml.literal(schema['default'])}`" if schema.get("default") not in (None, "", []) else ""
    description = schema["description"].replace("|", "\\|").replace("*", "\\*")
    return f"| `{key}` | {_format_type(schema)} | {default} | {description} |\n"


def _format_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{toml.literal(value)}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(map(_format_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_format_plural_type(schema['items'])}"
    if "$ref" in schema or _table_definition(schema):
        return "tables" if "additionalProperties" in schema else "table"
    if schema.get("type") == "object":
        return f"table of {_format_plural_type(schema['additionalProperties'])}"
    return _TYPE_NAMES[schema["type"]]


def _format_plural_type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_format_plural_type, schema["anyOf"]))
    item_type = _format_type(schema)
    return item_type.replace("list", "lists", 1) if item_type.startswith("list") else f"{item_type}s"
