"""What a script expects of the way in which its ranks start, from its text, without running it."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.script_files import MAX_FILE_BYTES, find_script
from hpcrun.script_imports import dotted_name, find_full_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_TORCHRUN_VARIABLES = frozenset({
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE",
})  # fmt: skip
"""Variables that torchrun sets, and hpcrun does not."""

_SPAWN_FUNCTIONS = frozenset({"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"})
_LOCAL_RANK_OPTIONS = ("--local_rank", "--local-rank")
_LOCAL_HOST = re.compile(r"(?:tcp://)?(localhost|127\.0\.0\.1|\[?::1\]?)(?::\d+)?")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCKS = (ast.If, ast.Try, ast.For, ast.While)


@dataclass(frozen=True)
class ScriptStart:
    """What a script does whatever its options and environment are.

    Attributes:
        torchrun_variable: A variable that it reads, and that only torchrun sets; empty if there is none.
        spawns: Whether it starts processes by torch.multiprocessing.
        local_rank_option: The option with the local rank that it declares, which torch.distributed.launch gives; empty
            if there is none.
        local_host: The name of its own host by which its processes find each other; empty if there is none.
    """

    torchrun_variable: str = ""
    spawns: bool = False
    local_host: str = ""
    local_rank_option: str = ""


def read_start(argv: tuple[str, ...], start: Path) -> ScriptStart:
    """Return what the Python script of a command line expects.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
    """
    file = find_script(argv, start)
    with suppress(OSError, SyntaxError, ValueError, RecursionError):
        if file and file.stat().st_size <= MAX_FILE_BYTES:
            return _read_tree(ast.parse(file.read_text(encoding="utf-8", errors="replace")))
    return ScriptStart()


def _read_tree(tree: ast.Module) -> ScriptStart:
    full_names = find_full_names(ast.walk(tree))
    nodes = list(_find_certain_nodes(tree))
    set_variables = {_variable(node) for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Store)}
    read_variables = {_variable(node) for node in nodes if isinstance(getattr(node, "ctx", None), ast.Load)}
    functions = {dotted_name(node.func, full_names) for node in nodes if isinstance(node, ast.Call)}
    return ScriptStart(
        torchrun_variable=min(read_variables & _TORCHRUN_VARIABLES - set_variables, default=""),
        spawns=bool(functions & _SPAWN_FUNCTIONS),
        local_host=next(filter(None, map(_local_host, nodes)), ""),
        local_rank_option=next(filter(None, map(_local_rank_option, ast.walk(tree))), ""),
    )


def _find_certain_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that run in any case: neither below ``if``, nor in functions that are only named there."""
    definitions = {node.name: node for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)}
    unread: list[ast.AST] = [*_find_certain_statements(tree.body)]
    while unread:
        node = unread.pop(0)
        yield node
        if definition := definitions.pop(_used_name(node), None):
            bodies = [
                each.body for each in definition.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"
            ]
            for body in (definition.body, *bodies):
                unread += _find_certain_statements(body)
        if isinstance(node, _BLOCKS):
            unread += _find_certain_statements(node.body)
        elif isinstance(node, ast.With):
            unread += [*node.items, *_find_certain_statements(node.body)]
        elif not isinstance(node, (*_DEFINITIONS, ast.Lambda, ast.IfExp, ast.BoolOp)):
            unread += ast.iter_child_nodes(node)


def _used_name(node: ast.AST) -> str:
    """Return the name of a function, class or method that a node may use; empty if it uses none."""
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def _find_certain_statements(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in statements:
        if not isinstance(statement, ast.If) or "'__name__'" in ast.dump(statement.test):
            yield statement
        elif any(map(_ends_program, ast.walk(statement))):
            return


def _ends_program(node: ast.AST) -> bool:
    """Return whether the statements after a node may not run."""
    is_exit = isinstance(node, ast.Call) and ast.unparse(node.func) in {"exit", "quit", "sys.exit", "os._exit"}
    return is_exit or isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _variable(node: ast.AST) -> str:
    """Return the name of the environment variable that a node reads or sets; empty if it is none."""
    match node:
        case ast.Subscript(
            value=ast.Attribute(attr="environ") | ast.Name(id="environ"), slice=ast.Constant(value=str(name))
        ):
            return name
    return ""


def _local_host(node: ast.AST) -> str:
    """Return this host's name that a node gives as the address of rank 0; empty if it gives none."""
    texts: list[str] = []
    match node:
        case ast.Assign(targets=[target], value=ast.Constant(value=str(host))) if _variable(target) == "MASTER_ADDR":
            texts = [host]
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name == "init_process_group":
            texts = [str(word.value.value) for word in node.keywords if isinstance(word.value, ast.Constant)]
    return next((match[1] for match in map(_LOCAL_HOST.fullmatch, texts) if match), "")


def _local_rank_option(node: ast.AST) -> str:
    """Return the option with the local rank that a node declares; empty if it declares none."""
    match node:
        case ast.Call(func=ast.Attribute(attr="add_argument"), args=names):
            texts = [name.value for name in names if isinstance(name, ast.Constant)]
            return next((option for option in _LOCAL_RANK_OPTIONS if option in texts), "")
    return ""
