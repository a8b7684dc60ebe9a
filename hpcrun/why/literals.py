"""Literal texts that each match of a regular expression contains, to skip most expressions quickly."""

from __future__ import annotations

import re
from functools import cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

MIN_LENGTH = 3
"""Minimum length of a literal text; shorter texts are in most logs."""

_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for logs, in which ``^`` and ``$`` match at the beginning and end of each line."""
    return re.compile(pattern, re.MULTILINE)


@cache
def required_literals(pattern: str) -> tuple[tuple[str, ...], ...]:
    """Return groups of literal texts: each condensed text that the pattern matches contains a text of each group.

    Args:
        pattern: A regular expression.
    """
    return tuple(tuple(sorted(texts)) for texts in _required_text_sets(_parser.parse(pattern)))


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


def _required_text_sets(items: Any) -> list[set[str]]:
    """Return the groups of literal texts of a sequence of parsed items."""
    found: list[set[str]] = []
    text = ""
    for operation, argument in items:
        if operation is _constants.LITERAL and argument != ord("\n"):
            text += chr(argument)
            continue
        found += [{condense(text)}, *_text_sets_of_item(operation, argument)]
        text = ""
    return [texts for texts in [*found, {condense(text)}] if _shortest(texts) >= MIN_LENGTH]


def _text_sets_of_item(operation: Any, argument: Any) -> list[set[str]]:
    if operation is _constants.SUBPATTERN:
        return _required_text_sets(argument[-1])
    if operation in {_constants.MAX_REPEAT, _constants.MIN_REPEAT} and argument[0] > 0:
        return _required_text_sets(argument[-1])
    if operation is _constants.BRANCH:
        best_groups = [max(_required_text_sets(branch), key=_shortest, default=None) for branch in argument[1]]
        return [set().union(*(texts for texts in best_groups if texts))] if all(best_groups) else []
    return []


def _shortest(texts: set[str]) -> int:
    return min(map(len, texts))
