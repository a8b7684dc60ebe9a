"""Literal texts that each match of a regular expression contains, to skip most expressions quickly."""

from __future__ import annotations

import re
from functools import cache

MIN_LENGTH = 3
"""Minimum length of a literal text; shorter texts are in most logs."""

_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_TOKEN = re.compile(
    r"(?P<text>(?:(?:[^\\\[(){|*+?^$.\n]|\{(?!\d*,?\d*\})|\\x[0-9a-fA-F]{2}|\\[^\w\n])(?![*+?]|\{\d*,?\d*\}))+)"
    r"|(?P<open>\((?:\?(?:P<\w+>|[a-z]*:|<?=))?(?!\?))|(?P<aside>\(\?<?!)|(?P<close>\))|(?P<or>\|)"
    r"|\(\?(?:[a-z]+|P=\w+)\)|\[\^?\]?(?:\\.|[^\\\]])*\]"
    r"|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\N\{[^}]*\}|\\.|[^\\\[()|*+?]",
    re.DOTALL,
)
"""Matches a run of literal characters, the beginning or end of a group, or anything else that matches one character."""
_QUANTIFIER = re.compile(r"[*+?]\??|\{\d*,?\d*\}\??")
_ESCAPE = re.compile(r"\\(?:x(..)|(.))")

Groups = list[set[str]]
"""Groups of texts: each match contains a text of each group."""


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for logs, in which ``^`` and ``$`` match at the beginning and end of each line."""
    return re.compile(pattern, re.MULTILINE)


@cache
def required_literals(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Return groups of literal texts: each condensed text that the pattern matches contains a text of each group.

    Reading a pattern here takes a fifth of the time of Python's own parser, and thousands are read at the start.

    Args:
        pattern: A regular expression without the flag for comments and spaces (``x``).
    """
    groups, end = _read_alternatives(pattern, 0)
    if end != len(pattern):
        return ()  # an expression in a form that is not known here may match any text
    return tuple(tuple(sorted(texts)) for texts in groups)


def condense(text: str) -> str:
    """Return the lines of a text in lower case, without digits and without duplicates, which shortens training logs.

    Args:
        text: The text.
    """
    return "\n".join(dict.fromkeys(text.lower().translate(_NO_DIGITS).split("\n")))


def may_match(pattern: str, condensed_text: str) -> bool:
    """Return whether a text may match a pattern; False means that it certainly does not.

    Args:
        pattern: A regular expression.
        condensed_text: The result of `condense`.
    """
    # use loops: generators take twice as long, and this code runs for each clue
    for texts in required_literals(pattern):
        for text in texts:
            if text in condensed_text:
                break
        else:
            return False
    return True


def _read_alternatives(pattern: str, start: int) -> tuple[Groups, int]:
    """Return the groups of alternatives, and the position of the bracket or end after them."""
    groups, end = _read_sequence(pattern, start)
    best_groups = [max(groups, key=_shortest, default=None)]
    while pattern[end : end + 1] == "|":
        groups, end = _read_sequence(pattern, end + 1)
        best_groups.append(max(groups, key=_shortest, default=None))
    if len(best_groups) == 1:
        return groups, end
    return [set().union(*(texts for texts in best_groups if texts))] if all(best_groups) else [], end


def _read_sequence(pattern: str, start: int) -> tuple[Groups, int]:
    """Return the groups of the items up to a bar, a closing bracket or the end, and that position."""
    groups: Groups = []
    while (token := _TOKEN.match(pattern, start)) and token.lastgroup not in {"close", "or"}:
        start = token.end()
        inner: Groups = []
        if token.lastgroup == "text":
            text = _condense_literal(token["text"])
            inner = [{text}] if len(text) >= MIN_LENGTH else []
        elif token.lastgroup in {"open", "aside"}:
            inner, start = _read_alternatives(pattern, start)
            start += 1  # the closing bracket
        quantifier = _QUANTIFIER.match(pattern, start)
        if quantifier:
            start = quantifier.end()
        if token.lastgroup != "aside" and not (quantifier and quantifier[0].startswith(("*", "?", "{0", "{,"))):
            groups += inner
    return groups, start


def _condense_literal(text: str) -> str:
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], text)
    return text.lower().translate(_NO_DIGITS)


def _shortest(texts: set[str]) -> int:
    return min(map(len, texts))
