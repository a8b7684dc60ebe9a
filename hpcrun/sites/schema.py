"""The JSON Schema of site files, with the docstrings under the model's fields as descriptions."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from pydantic import TypeAdapter

from hpcrun import resources
from hpcrun.sites import model


def _docstrings() -> dict[tuple[str, str], str]:
    """Return the docstring under each field, by class and field name.

    pydantic reads them too (``use_attribute_docstrings``), but not in a dataclass that is the standard library's.
    """
    found = {}
    for module in (resources, model):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                for field, after in zip(node.body, node.body[1:], strict=False):
                    match field, after:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            found[node.name, name] = text
    return found


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema of a site file: the model's, without ``name`` (the file's own) and with ``extends``."""
    schema = TypeAdapter(model.Site).json_schema()
    docstrings = _docstrings()
    for kind, table in [("Site", schema), *schema["$defs"].items()]:
        for name, facts in table.get("properties", {}).items():
            inherited = docstrings.get(("Limits", name))  # a Partition has all that Limits have
            facts["description"] = docstrings.get((kind, name), inherited)
    del schema["properties"]["name"]
    schema["required"] = [key for key in schema.get("required", ()) if key != "name"]
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Another site, whose values this one starts from.",
    }
    return schema
