"""HpcrunError, the exception for people, and helpers for texts on a terminal."""

from __future__ import annotations

import re

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters (without tab and line feed), and those that change the direction of text."""

_ALLOWED_IN_LOGS = re.compile("(\x1b\\[[0-9;:]*m|[\r\b])")
"""Colours, carriage return and backspace."""


class HpcrunError(Exception):
    """A mistake of the user or a fault of the cluster, printed without a traceback.

    Args:
        message: What was given and what holds here, in plain words.
        hint: What to do about it; printed on its own line after ``HINT:``.
        exit_code: The exit code of the command that fails (2, as for wrong options).
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\nHINT: {self.hint}" if self.hint else self.message


def pluralize(number: int | None, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def sanitize(text: str) -> str:
    """Escape control characters, and characters that change the direction of text, for a terminal.

    Args:
        text: Lines for people, which may quote a file of somebody else.
    """
    return _CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def sanitize_log(text: str) -> str:
    """Escape the control characters of a log, except colours, tabs, carriage returns and backspaces, like ``less -R``.

    Args:
        text: Any part of the log.
    """
    parts = _ALLOWED_IN_LOGS.split(text)
    return "".join(part if number % 2 else sanitize(part) for number, part in enumerate(parts))


def closest_match(name: str, known: list[str]) -> str | None:
    """Return the known name closest to a mistyped one, or None where nothing is close.

    Args:
        name: What the user typed.
        known: The valid names.
    """
    from difflib import get_close_matches

    other_case = [word for word in known if word.lower() == name.lower()]
    close = [word for word in get_close_matches(name, known, cutoff=0.6) if _is_misspelling(name, word)]
    return next(iter([*other_case, *close]), None)


def closest_feature(name: str, known: list[str]) -> str | None:
    """Return the known name that a mistyped one means, or None where it may be another: cpu is not gpu, a100 not v100.

    Args:
        name: What the user typed, such as a QoS, a node feature or an account.
        known: The valid names.
    """
    like = closest_match(name, known)
    if like is None or name.lower() == like.lower():
        return like
    is_another = re.findall(r"\d+", name) != re.findall(r"\d+", like) or not re.search(r"\D", name)
    is_replaced = len(name) == len(like) and sorted(name) != sorted(like)
    return None if is_another or (is_replaced and (len(name) < _LONG or re.search(r"\d", name))) else like


_LONG = 6
"""A name from this length on with one other letter is misspelled; a shorter one may be another name."""


def _is_misspelling(name: str, word: str) -> bool:
    """Return whether a name is a word with a few wrong letters, swapped letters, or without its end."""
    from difflib import SequenceMatcher

    steps = SequenceMatcher(None, name, word).get_opcodes()
    wrong = sum(max(end - begin, last - first) for step, begin, end, first, last in steps if step != "equal")
    shorter, longer = sorted((name, word), key=len)
    return longer.startswith(shorter) or sorted(name) == sorted(word) or wrong <= max(1, len(longer) // 4)
