"""Which part of the user's line of code an exception is about, such as the expression that is None."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_PART_CHARACTERS = 60

_PATH_FUNCTIONS = re.compile(
    r"/(?:posixpath|genericpath|pathlib|os|shutil|io|glob|fnmatch)\.py$|<frozen (?:posix|generic)path"
)
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_OPERATORS: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "@": ast.MatMult, "%": ast.Mod, "/": ast.Div, "//": ast.FloorDiv,
    "** or pow()": ast.Pow,
}  # fmt: skip
_FUNCTIONS_OF_ITERABLES = frozenset({
    "all", "any", "dict", "enumerate", "filter", "iter", "list", "map", "max", "min", "reversed", "set", "sorted",
    "sum", "tuple", "zip",
})  # fmt: skip
_METHODS_WITH_KEYS = frozenset({"pop", "remove"})

_NAME_IN_MESSAGE = re.compile(
    r"""[`'"](?P<name>[a-z_]\w{2,40})[`'"]|\b[Aa]rgument (?P<bare>[a-z_]\w{2,40})\b|\b(?P<given>[a-z_]\w{2,40})=""",
)
"""Matches the name of an argument in a message, in quotes, after the word argument or before a value."""

_Node = TypeVar("_Node", bound=ast.AST)


def describe(error: str, code: str, raised_in: str, file: str) -> str:
    """Return the part of a line of code that an exception is about; empty if it is unknown or ambiguous.

    Args:
        error: The exception's type and message.
        code: The user's line of code; it may be a part of a statement.
        raised_in: The file that raised the exception.
        file: The user's file with that line.
    """
    in_path_function = bool(_PATH_FUNCTIONS.search(raised_in))
    if not code or (raised_in != file and not in_path_function):
        return ""
    finders = _FINDERS.get(error.partition(":")[0], ())
    for pattern, find in _PATH_FINDERS if in_path_function else finders:
        if match := re.search(pattern, error):
            tree = _parse(code)
            found = set(find(tree, match)) if tree else set[str]()
            return found.pop() if len(found) == 1 else ""
    return ""


def describe_library(error: str, code: str, library: str) -> str:
    """Return the part of a library's line of code that an exception is about; empty if it is unknown or ambiguous.

    Args:
        error: The exception's type and message.
        code: The library's line of code that raised the exception.
        library: The library's file.
    """
    details = describe(error, code, library, library)
    return f"in {library}, {details}" if details else ""


def describe_argument(error: str, code: str) -> str:
    """Return the argument in the user's line of code that a library's message names; empty if there is not just one.

    Args:
        error: The exception's type and message.
        code: The user's line of code that called the library.
    """
    names = {match[match.lastgroup or 0] for match in _NAME_IN_MESSAGE.finditer(error)}
    tree = _parse(code) if names and "=" in code else None
    keywords = [keyword for node in _nodes(tree, ast.Call) for keyword in node.keywords] if tree else []
    found = {f"`{keyword.arg}={ast.unparse(keyword.value)}`" for keyword in keywords if keyword.arg in names}
    part = found.pop() if len(found) == 1 else ""
    return f"that line gives {part}" if part and len(part) <= MAX_PART_CHARACTERS else ""


def _parse(code: str) -> ast.Module | None:
    """Parse a line of code, which may lack its end, the other ends of its brackets and the statements of its block."""
    code = code.removesuffix(" ...").rpartition(",")[0] if code.endswith(" ...") else code
    code = _complete(re.sub(r"^elif\b", "if", code).rstrip(" ,\\"))
    for text in (code, f"{code} pass", f"{code}: pass", f"f({code})"):
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):  # a part of a statement
            continue
    return None


def _complete(code: str) -> str:
    """Remove brackets that were opened on an earlier line, and add those that are closed on a later line."""
    missing: list[str] = []
    kept, quote = "", ""
    for character in code:
        if quote or character in "'\"":
            quote = "" if character == quote else quote or character
        elif character in _BRACKETS:
            missing.append(_BRACKETS[character])
        elif character in ")]}" and (not missing or missing.pop() != character):
            continue
        kept += character
    return kept.rstrip(" ,") + "".join(reversed(missing)) if missing else kept


def _nodes(tree: ast.AST, kind: type[_Node]) -> Iterator[_Node]:
    return (node for node in ast.walk(tree) if isinstance(node, kind))


def _loops(tree: ast.AST) -> list[ast.For | ast.comprehension]:
    return [*_nodes(tree, ast.For), *_nodes(tree, ast.comprehension)]


def _quote(node: ast.AST) -> str:
    """Return the code of an expression; empty for a literal and an expression that is too long or says nothing."""
    text = ast.unparse(node)
    is_useful = len(text) <= MAX_PART_CHARACTERS and text != "self" and not isinstance(node, ast.Constant)
    return f"`{text}`" if is_useful else ""


def _describe_type(node: ast.AST, kind: str) -> Iterator[str]:
    if not (text := _quote(node)):
        return
    verb = "returned" if kind == "NoneType" and isinstance(node, ast.Call) else "is"
    yield f"{text} {verb} {_name_type(kind)}"


def _name_type(kind: str) -> str:
    return "None" if kind == "NoneType" else f"{'an' if kind[:1] in 'aeiouAEIO' else 'a'} {kind}"


def _find_attribute(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Attribute):
        if node.attr == match["name"]:
            yield from _describe_type(node.value, match["kind"])


def _find_subscript(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Subscript):
        yield from _describe_type(node.value, match["kind"])


def _find_call(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        yield from _describe_type(node.func, match["kind"])


def _find_iteration(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    calls = [node for node in _nodes(tree, ast.Call) if ast.unparse(node.func) in _FUNCTIONS_OF_ITERABLES]
    for iterable in [*(loop.iter for loop in _loops(tree)), *(argument for call in calls for argument in call.args)]:
        if iterable not in calls:  # they return iterables
            yield from _describe_type(iterable, match["kind"])
    for node in _nodes(tree, ast.Assign):
        if isinstance(node.targets[0], ast.Tuple | ast.List) and node.value not in calls:
            yield from _describe_type(node.value, match["kind"])


def _find_unpacked(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Assign):
        if isinstance(node.targets[0], ast.Tuple | ast.List):
            yield from _describe_type(node.value, match["kind"])
    for loop in _loops(tree):
        if isinstance(loop.target, ast.Tuple | ast.List) and (text := _quote(loop.iter)):
            yield f"an element of {text} is {_name_type(match['kind'])}"


def _find_argument(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        if ast.unparse(node.func) == match["function"] and node.args:
            yield from _describe_type(node.args[0], match["kind"])


def _find_keyword(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        if any(keyword.arg == match["name"] for keyword in node.keywords) and (text := _quote(node.func)):
            yield f"{text} takes no argument {match['name']}"


def _find_operand(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    operations = [(node.op, node.left, node.right) for node in _nodes(tree, ast.BinOp)]
    operations += [(node.op, node.target, node.value) for node in _nodes(tree, ast.AugAssign)]
    kinds = (match["left"], match["right"])
    kind = next((kind for kind in ("NoneType", "str") if kind in kinds), None)
    for operator, *operands in operations:
        if kind and type(operator) is _OPERATORS.get(match["operator"].rstrip("=")):
            yield from _describe_type(operands[kinds.index(kind)], kind)


def _find_factor(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.BinOp):
        factors = [n for n in (node.left, node.right) if not isinstance(n, ast.List | ast.Tuple | ast.Constant)]
        if isinstance(node.op, ast.Mult) and len(factors) == 1:
            yield from _describe_type(factors[0], match["kind"])


def _find_compared(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Compare):
        for kind, operand in ((match["left"], node.left), (match["right"], node.comparators[0])):
            if kind in {"NoneType", "str"} and len(node.ops) == 1:
                yield from _describe_type(operand, kind)


def _find_container(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            yield from _describe_type(node.comparators[0], match["kind"])


def _find_key(tree: ast.AST, match: re.Match[str]) -> Iterator[str]:
    if any(isinstance(n.func, ast.Attribute) and n.func.attr in _METHODS_WITH_KEYS for n in _nodes(tree, ast.Call)):
        return  # the key may be an argument of the method
    nodes = list(_nodes(tree, ast.Subscript))
    key = match["key"].strip("'")
    with_key = [n for n in nodes if isinstance(n.slice, ast.Constant) and str(n.slice.value) == key]
    for node in with_key or [n for n in nodes if not isinstance(n.slice, ast.Constant | ast.Slice)]:
        if text := _quote(node.value):
            yield f"{text} has no key {match['key']}" + ("" if with_key else f", the value of {_quote(node.slice)}")


def _find_index(tree: ast.AST, _match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Subscript):
        if not isinstance(node.slice, ast.Slice) and (text := _quote(node.value)):
            index = ast.unparse(node.slice)
            yield f"{text} is empty" if index in {"0", "-1"} else f"{text} has no element {index}"


def _find_divisor(tree: ast.AST, _match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.BinOp):
        is_text = isinstance(node.left, ast.Constant | ast.JoinedStr)  # with placeholders before %
        if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod) and not is_text and (text := _quote(node.right)):
            yield f"{text} is zero"


def _find_path(tree: ast.AST, _match: re.Match[str]) -> Iterator[str]:
    for node in _nodes(tree, ast.Call):
        parts = [text for value in node.args if not isinstance(value, ast.JoinedStr) and (text := _quote(value))]
        if parts and not any(isinstance(value, ast.Call) for value in node.args):
            yield f"{parts[0]} is None" if len(parts) == 1 else f"one of {', '.join(parts)} is None"


_Finder = tuple[str, "Callable[[ast.AST, re.Match[str]], Iterator[str]]"]
_PATH_FINDERS: tuple[_Finder, ...] = (
    (r"(?:join\(\) argument|expected str, bytes or os\.PathLike|should be a str).*NoneType", _find_path),
)
_FINDERS: dict[str, tuple[_Finder, ...]] = {
    "AttributeError": ((r"'(?P<kind>\w+)' object has no attribute '(?P<name>\w+)'", _find_attribute),),
    "TypeError": (
        (r"'(?P<kind>[\w.]+)' object (?:is not subscriptable|does not support item assignment)", _find_subscript),
        (r"'(?P<kind>[\w.]+)' object is not callable", _find_call),
        (r"'(?P<kind>[\w.]+)' object is not iterable", _find_iteration),
        (r"argument of type '(?P<kind>[\w.]+)' is not (?:iterable|a container)", _find_container),
        (r"cannot unpack non-iterable (?P<kind>\w+) object", _find_unpacked),
        (r"object of type '(?P<kind>[\w.]+)' has no (?P<function>len)\(\)", _find_argument),
        (r" (?P<function>int|float)\(\) argument must be .*, not '(?P<kind>\w+)'", _find_argument),
        (r"unsupported operand .* for (?P<operator>[^:]+): '(?P<left>\w+)' and '(?P<right>\w+)'", _find_operand),
        (r" not supported between instances of '(?P<left>\w+)' and '(?P<right>\w+)'", _find_compared),
        (r"got an unexpected keyword argument '(?P<name>\w+)'", _find_keyword),
        (r"can't multiply sequence by non-int of type '(?P<kind>\w+)'", _find_factor),
        *_PATH_FINDERS,
    ),
    "KeyError": ((r": (?P<key>'[^']{1,80}'|-?\d+)$", _find_key),),
    "IndexError": ((r": (?:list|tuple|string) index out of range", _find_index),),
    "ZeroDivisionError": ((r":", _find_divisor),),
}
"""The finders of each type of exception, with the messages that they understand."""
