"""The JSON Schema of site files, with the docstrings under the model's fields as descriptions."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from pydantic import TypeAdapter

from hpcrun import resources
from hpcrun.sites import limits, model, partition, software_tables, tables

FILE = "site.schema.json"
"""The schema's file name; the first line of site files ``#:schema ./FILE`` is for Taplo and Even Better TOML."""


def _read_docstrings() -> dict[tuple[str, str], str]:
    """Return the docstring of each field, by class and field name.

    pydantic reads them (``use_attribute_docstrings``), but not in a dataclass of the standard library.
    """
    found = {}
    for module in (resources, limits, tables, software_tables, partition, model):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                for field, after in zip(node.body, node.body[1:], strict=False):
                    match field, after:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            found[node.name, name] = " ".join(text.split())
    return found


def site_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of a site file: the model's, without ``name`` (the file's own) and with the file's keys.

    It is a draft-07 schema, which editors support; it omits null, which TOML does not have.
    """
    schema = TypeAdapter(model.Site).json_schema(ref_template="#/definitions/{model}")
    schema["definitions"] = schema.pop("$defs")
    docstrings = _read_docstrings()
    for kind, table in [("Site", schema), *schema["definitions"].items()]:
        del table["title"]
        table["description"] = " ".join(table.get("description", "").partition("\n\nRaises:")[0].split())
        for name, facts in table["properties"].items():
            inherited = docstrings.get(("Limits", name))  # a Partition has all that Limits have
            table["properties"][name] = _describe_property(
                facts, docstrings.get((kind.removeprefix("Own"), name), inherited)
            )
    del schema["properties"]["name"], schema["required"]
    extends = {"type": "string", "description": "Another site, whose values are the defaults of this one."}
    unset = {"type": "array", "items": {"type": "string"}}
    unset |= {"description": "Keys of lower layers and of the extended site to ignore, such as mpi.type."}
    schema["properties"] = {"extends": extends, "unset": unset, **schema["properties"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A site file of hpcrun",
        **schema,
    }


def _describe_property(facts: dict[str, Any], description: str | None) -> dict[str, Any]:
    """Return the schema of one key, with its description."""
    facts = {name: value for name, value in facts.items() if name != "title"}
    kinds = [kind for kind in facts.pop("anyOf", ()) if kind != {"type": "null"}]
    facts |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
    if facts.get("default", ...) in (None, {}) or isinstance(facts.get("default"), dict):
        del facts["default"]  # has no TOML literal
    if ref := facts.pop("$ref", None):
        facts["allOf"] = [{"$ref": ref}]  # beside a $ref, draft-07 ignores the description
    return {**facts, "description": description}
