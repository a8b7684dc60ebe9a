"""The JSON Schema of site files; the docstrings of the model's fields are the descriptions."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from pydantic import TypeAdapter

from hpcrun import resources
from hpcrun.sites import limits, partition, site_model, software_tables, tables

SCHEMA_FILE = "site.schema.json"
"""The schema's file name, as in the first line of site files, ``#:schema ./FILE``, for Taplo and Even Better TOML."""


def _read_docstrings() -> dict[tuple[str, str], str]:
    """Return the docstring of each field, by class and field name.

    pydantic's option ``use_attribute_docstrings`` does not support dataclasses of the standard library.
    """
    docstrings = {}
    for module in (resources, limits, tables, software_tables, partition, site_model):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                for field, after in zip(node.body, node.body[1:], strict=False):
                    match field, after:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            docstrings[node.name, name] = " ".join(text.split())
    return docstrings


def site_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of a site file: of `model.Site`, plus ``extends`` and ``unset``, minus ``name``.

    The schema follows draft-07, which editors support, and omits null, which TOML does not have.
    """
    schema = TypeAdapter(site_model.Site).json_schema(ref_template="#/definitions/{model}")
    schema["definitions"] = schema.pop("$defs")
    docstrings = _read_docstrings()
    for kind, table in [("Site", schema), *schema["definitions"].items()]:
        del table["title"]
        table["description"] = " ".join(table.get("description", "").partition("\n\nRaises:")[0].split())
        for name, facts in table["properties"].items():
            inherited_docstring = docstrings.get(("Limits", name))  # a Partition has all fields of Limits
            table["properties"][name] = _describe_property(
                facts, docstrings.get((kind.removeprefix("Own"), name), inherited_docstring)
            )
    del schema["properties"]["name"], schema["required"]
    extends_schema = {"type": "string", "description": "Another site, whose values are the defaults of this one."}
    unset_schema = {"type": "array", "items": {"type": "string"}}
    unset_schema |= {"description": "Keys of lower layers and of the extended site to ignore, such as mpi.type."}
    schema["properties"] = {"extends": extends_schema, "unset": unset_schema, **schema["properties"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A site file of hpcrun",
        **schema,
    }


def _describe_property(schema: dict[str, Any], description: str | None) -> dict[str, Any]:
    """Return the schema of one key, with its description."""
    schema = {name: value for name, value in schema.items() if name != "title"}
    alternatives = [kind for kind in schema.pop("anyOf", ()) if kind != {"type": "null"}]
    schema |= alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives} if alternatives else {}
    if schema.get("default", ...) in (None, {}) or isinstance(schema.get("default"), dict):
        del schema["default"]  # has no TOML literal
    if ref := schema.pop("$ref", None):
        schema["allOf"] = [{"$ref": ref}]  # draft-07 ignores a description next to a $ref
    return {**schema, "description": description}
