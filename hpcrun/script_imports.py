"""Full names of the modules and members that a Python file imports, from its syntax tree."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def find_full_names(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the dotted names of the modules and members that the nodes of a file import, by their local names."""
    full_names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            full_names |= {
                alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            full_names |= {alias.asname or alias.name: imported_prefix(node) + alias.name for alias in node.names}
    return full_names


def imported_prefix(node: ast.ImportFrom) -> str:
    """Return what stands before an imported name in its full name, such as ``torch.`` or ``..model.``."""
    return "." * node.level + (f"{node.module}." if node.module else "")


def find_attribute(node: ast.AST) -> ast.Attribute | None:
    """Return the attribute that a node reads, also with ``getattr``; None if it reads none."""
    match node:
        case ast.Attribute():
            return node
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return ast.Attribute(value, name)
    return None


def dotted_name(node: ast.expr, full_names: dict[str, str]) -> str:
    """Return the dotted name of a module's member, such as ``torch.multiprocessing.spawn``; empty if it is none."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in full_names:
        return ""
    return ".".join([full_names[node.id], *reversed(words)])


def package_of_import(call: ast.Call) -> str:
    """Return the package of a relative import such as ``import_module(".distributed", "torch")``; else empty."""
    values = [
        each.value
        for each in (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(each, ast.Constant)
    ]
    return str(values[1]) if len(values) > 1 and str(values[0]).startswith(".") else ""


def function_name(node: ast.expr) -> str:
    """Return the name of a called function, without its module; empty if it has none."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
