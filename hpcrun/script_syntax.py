"""A check for syntax errors and commands of notebooks, which would make a job fail at once in any version of Python."""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from textwrap import shorten
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from pathlib import Path

_WRONG_IN_ALL_VERSIONS = r"expected ':'|was never closed$|^Missing parentheses in call to 'print'"
"""Pattern of messages about syntax errors that are errors in all versions of Python."""

_OPERATORS = ("+", "-", "%", "&", "|", "^", "@", "<", "==", "!=", "<=", ">=", " and", " or", " not", " in", " is")
_WRONG_PAIRS = (
    *((bracket, tuple(":,=.;")) for bracket in "({"),
    ("[", tuple(",=.;")),
    (",", (",", "=", ";")),
    *((operator, tuple(")]}:;")) for operator in _OPERATORS),
    *((operator, ()) for operator in (*_OPERATORS, "=", "+=", "-=", "*=", "/=")),
)
"""Tokens, each with the tokens that cannot follow it; a token with an empty tuple cannot end a line."""

_NOTEBOOK_COMMAND = re.compile(r"\s*(?:\w+\s*=\s*)?(?:!|%%?)[A-Za-z]")


def check_syntax(script: Path) -> None:
    """Check the syntax of a Python script.

    Raises:
        HpcrunError: The script cannot be read, has a syntax error in all versions of Python, or contains a
            command of a notebook.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(script.read_bytes())
        _refuse_notebook_commands(tree, script)
    except SyntaxError as error:
        if error.text and _NOTEBOOK_COMMAND.match(error.text):
            _refuse_line(script, error.lineno, error.text.strip())
        if isinstance(error, IndentationError) or re.search(_WRONG_IN_ALL_VERSIONS, error.msg) or _is_wrong_pair(error):
            raise HpcrunError(
                f"{script}, line {error.lineno}: {type(error).__name__}: {error.msg}",
                hint="correct that line; a job would fail there at once",
            ) from None
    except PermissionError as error:
        hint = f"ls -l {shlex.quote(str(script))} shows who can read it"
        raise HpcrunError(f"{script}: {error.strerror}", hint=hint) from None
    except (OSError, ValueError, RecursionError):
        return


def _is_wrong_pair(error: SyntaxError) -> bool:
    """Return whether a syntax error is an invalid token pair in every version of Python, as in ``f(:`` or ``x = ``."""
    if error.msg != "invalid syntax" or not error.text or not error.offset:
        return False
    text_before, text_after = (
        error.text[: error.offset - 1].rstrip(),
        error.text[error.offset - 1 :].partition("#")[0].strip(),
    )
    return any(
        text_before.endswith(left) and (text_after[:1] in right if text_after else not right)
        for left, right in _WRONG_PAIRS
    )


def _refuse_notebook_commands(tree: ast.Module, script: Path) -> None:
    """Refuse get_ipython(), by which jupyter nbconvert replaces the commands of a notebook, where it always runs."""
    if any(map(_defines_get_ipython, ast.walk(tree))):
        return
    for statement in tree.body:
        if isinstance(statement, ast.Expr | ast.Assign) and ast.unparse(statement.value).startswith("get_ipython()"):
            _refuse_line(script, statement.lineno, ast.unparse(statement))


def _defines_get_ipython(node: ast.AST) -> bool:
    match node:
        case ast.Name(id="get_ipython", ctx=ast.Store()) | ast.Attribute(attr="get_ipython", ctx=ast.Store()):
            return True
        case ast.FunctionDef(name="get_ipython") | ast.ClassDef(name="get_ipython"):
            return True
        case ast.alias(name="get_ipython") | ast.alias(asname="get_ipython"):
            return True
    return False


def _refuse_line(script: Path, line: int | None, text: str) -> None:
    short_text = shorten(text, 80, placeholder=" ...")
    message = f"{script}, line {line}: {short_text} is a command of a notebook, not of Python"
    raise HpcrunError(message, hint="remove that line, and do what it does before the job, such as pip install")
