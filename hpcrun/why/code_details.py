"""Which part of the user's line of code an exception is about, such as the expression that is None."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HELPERS_OF_PATHS = re.compile(r"/(?:posixpath|genericpath|pathlib|os|shutil|io|glob|fnmatch)\.py$|<frozen (?:posix|generic)path")
_CLAUSE = re.compile(r"^(?:elif|except|else|finally)\b")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_OPERATORS: dict[str, tuple[type[ast.operator], ...]] = {
    "+": (ast.Add,), "+=": (ast.Add,), "-": (ast.Sub,), "*": (ast.Mult,), "@": (ast.MatMult,), "%": (ast.Mod,),
    "/": (ast.Div,), "//": (ast.FloorDiv,), "** or pow()": (ast.Pow,),
}  # fmt: skip


def describe(error: str, code: str, raised_in: str, file: str) -> str:
    """Return the part of a line of code that an exception is about; empty if it is unknown or ambiguous.

    Args:
        error: The exception's type and message.
        code: The user's line of code; it may be a part of a statement.
        raised_in: The file that raised the exception.
        file: The user's file with that line.
    """
    is_helper = bool(_HELPERS_OF_PATHS.search(raised_in))
    if not code or (raised_in != file and not is_helper):
        return ""
    for pattern, find in _PATH_FINDERS if is_helper else _FINDERS:
        if match := pattern.search(error):
            found = {text for tree in [_parse(code)] if tree for text in find(tree, match)}
            return found.pop() if len(found) == 1 else ""
    return ""


def _parse(code: str) -> ast.Module | None:
    """Parse a line of code, which may lack its brackets' other ends and the statements of its block."""
    code = _complete(_CLAUSE.sub(lambda clause: "if" if clause[0] == "elif" else clause[0], code).rstrip(" ,\\"))
    for text in (code, f"{code} pass", f"{code}: pass", f"f({code})"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):  # a part of a statement
            continue
    return None


def _complete(code: str) -> str:
    """Remove brackets that were opened on an earlier line, and add those that are closed on a later line."""
    opened: list[str] = []
    kept = ""
    quote = ""
    for character in code:
        if quote or character in "'\"":
            quote = "" if character == quote else quote or character
        elif character in _BRACKETS:
            opened.append(_BRACKETS[character])
        elif character in ")]}" and (not opened or opened.pop() != character):
            continue
        kept += character
    return kept.rstrip(" ,") + "".join(reversed(opened)) if opened else kept


def _source(node: ast.AST) -> str:
    text = ast.unparse(node)
    return f"`{text}`" if len(text) <= 60 else ""


def _is(node: ast.AST, kind: str) -> Iterator[str]:
    """Describe the value of an expression."""
    text = _source(node)
    if not text or text == "`self`" or isinstance(node, ast.Constant):
        return
    if kind != "NoneType":
        yield f"{text} is a {kind}" if kind[:1] not in "aeiouAEIO" else f"{text} is an {kind}"
    elif isinstance(node, ast.Call):
        yield f"{text} returned None"
    else:
        yield f"{text} is None"


def _nodes(tree: ast.AST, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def _of_attribute(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Attribute):
        if isinstance(node, ast.Attribute) and node.attr == match["name"]:
            yield from _is(node.value, match["kind"])


def _of_subscript(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Subscript):
        if isinstance(node, ast.Subscript):
            yield from _is(node.value, match["kind"])


def _of_call(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        if isinstance(node, ast.Call):
            yield from _is(node.func, match["kind"])


def _of_iteration(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.For, ast.comprehension, ast.Assign):
        if isinstance(node, (ast.For, ast.comprehension)):
            yield from _is(node.iter, match["kind"])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            yield from _is(node.value, match["kind"])


def _of_length(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == (match.groupdict().get("function") or "len"):
            for argument in node.args[:1]:
                yield from _is(argument, match["kind"])


def _of_operation(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.BinOp, ast.AugAssign):
        if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS.get(match["operator"], ())):
            operands = (node.left, node.right)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, _OPERATORS.get(match["operator"], ())):
            operands = (node.target, node.value)
        else:
            continue
        kinds = (match["left"], match["right"])
        odd = [n for n, kind in enumerate(kinds) if kind == "NoneType"] or [n for n, kind in enumerate(kinds) if kind == "str"]
        for number in odd[:1]:
            yield from _is(operands[number], kinds[number])


def _of_comparison(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Compare):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            for kind, operand in ((match["left"], node.left), (match["right"], node.comparators[0])):
                if kind in {"NoneType", "str"}:
                    yield from _is(operand, kind)


def _of_key(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    key = match["key"].strip("'\"")
    subscripts = [node for node in _nodes(tree, ast.Subscript) if isinstance(node, ast.Subscript)]
    equal = [n for n in subscripts if isinstance(n.slice, ast.Constant) and str(n.slice.value) == key]
    computed = [n for n in subscripts if not isinstance(n.slice, (ast.Constant, ast.Slice))]
    for node in equal or computed:
        if text := _source(node.value):
            name = "" if equal else f", the value of {_source(node.slice)}"
            yield f"{text} has no key {match['key']}{name}"


def _of_index(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Subscript):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice) and (text := _source(node.value)):
            index = ast.unparse(node.slice)
            yield f"{text} is empty" if index in {"0", "-1"} else f"{text} has no element {index}"


def _of_division(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.BinOp):
        is_division = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod))
        if not is_division or isinstance(node.right, ast.Constant) or isinstance(node.left, ast.Constant | ast.JoinedStr):
            continue  # such as a string with placeholders before %
        if text := _source(node.right):
            yield f"{text} is zero"


def _of_path(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        if not isinstance(node, ast.Call):
            continue
        values = [value for value in node.args if not isinstance(value, (ast.Constant, ast.JoinedStr, ast.Call))]
        sources = [text for value in values if (text := _source(value))]
        if sources and not any(isinstance(value, ast.Call) for value in node.args):
            yield f"{sources[0]} is None" if len(sources) == 1 else f"one of {', '.join(sources)} is None"


_Finder = tuple[re.Pattern[str], "Callable[[ast.AST, re.Match[str]], Iterator[str]]"]
_NO_PATH: _Finder = (
    re.compile(r"(?:join\(\) argument|expected str, bytes or os\.PathLike object|argument should be a str).* .?NoneType|_getfullpathname.*NoneType"),
    _of_path,
)
_FINDERS: tuple[_Finder, ...] = (
    (re.compile(r"^AttributeError: '(?P<kind>\w+)' object has no attribute '(?P<name>\w+)'"), _of_attribute),
    (re.compile(r"^TypeError: '(?P<kind>[\w.]+)' object is not subscriptable"), _of_subscript),
    (re.compile(r"^TypeError: '(?P<kind>[\w.]+)' object does not support item assignment"), _of_subscript),
    (re.compile(r"^TypeError: '(?P<kind>[\w.]+)' object is not callable"), _of_call),
    (re.compile(r"^TypeError: (?:cannot unpack non-iterable (?P<kind>NoneType|int|float|bool) object)"), _of_iteration),
    (re.compile(r"^TypeError: '(?P<kind>[\w.]+)' object is not iterable"), _of_iteration),
    (re.compile(r"^TypeError: object of type '(?P<kind>[\w.]+)' has no len\(\)"), _of_length),
    (re.compile(r"^TypeError: (?P<function>int|float)\(\) argument must be .*, not '(?P<kind>\w+)'"), _of_length),
    (re.compile(r"^TypeError: unsupported operand type\(s\) for (?P<operator>[^:]+): '(?P<left>\w+)' and '(?P<right>\w+)'"), _of_operation),
    (re.compile(r"^TypeError: '\S+' not supported between instances of '(?P<left>\w+)' and '(?P<right>\w+)'"), _of_comparison),
    (re.compile(r"^KeyError: (?P<key>'[^']{1,80}'|-?\d+)$"), _of_key),
    (re.compile(r"^IndexError: (?:list|tuple|string) index out of range"), _of_index),
    (re.compile(r"^ZeroDivisionError: "), _of_division),
    _NO_PATH,
)  # fmt: skip
_PATH_FINDERS: tuple[_Finder, ...] = (_NO_PATH,)
