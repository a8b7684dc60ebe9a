"""The exception HpcrunError, which is printed without a traceback, and functions for text on a terminal."""

from __future__ import annotations

import re

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and characters that change the direction of text."""

_ALLOWED_IN_LOGS = re.compile("(\x1b\\[[0-9;:]*m|[\r\b])")
"""Terminal sequences that are not escaped in logs: colours, carriage return and backspace."""


class HpcrunError(Exception):
    """An error of the user or of the cluster, printed without a traceback.

    Args:
        message: The given value, and the reason why it is invalid, in plain words.
        hint: How to correct the error; printed on a separate line after ``HINT:``.
        exit_code: The exit code of the hpcrun command; default: 2, as for invalid options.
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\nHINT: {self.hint}" if self.hint else self.message


def pluralize(count: int | None, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def sanitize(text: str) -> str:
    """Escape control characters, and characters that change the direction of text, for a terminal.

    Args:
        text: Text to print, which may contain parts of another user's file.
    """
    return _CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def sanitize_log(text: str) -> str:
    """Escape the control characters in a log, except colours, tabs, carriage returns and backspaces, like ``less -R``.

    Args:
        text: Any part of the log.
    """
    parts = _ALLOWED_IN_LOGS.split(text)
    return "".join(part if number % 2 else sanitize(part) for number, part in enumerate(parts))


def closest_match(name: str, known_names: list[str]) -> str | None:
    """Return the known name that is closest to a mistyped name; None if no name is close.

    Args:
        name: The name that the user typed.
        known_names: The valid names.
    """
    from difflib import get_close_matches

    case_variants = [word for word in known_names if word.lower() == name.lower()]
    similar_names = [word for word in get_close_matches(name, known_names, cutoff=0.6) if _is_misspelling(name, word)]
    return next(iter([*case_variants, *similar_names]), None)


def closest_unambiguous_match(name: str, known_names: list[str]) -> str | None:
    """Return the known name that a mistyped name certainly means; None if it may be a different name, as cpu and gpu.

    Args:
        name: The name that the user typed, such as a QoS, a node feature or an account.
        known_names: The valid names.
    """
    closest_name = closest_match(name, known_names)
    if closest_name is None or name.lower() == closest_name.lower():
        return closest_name
    has_other_digits = re.findall(r"\d+", name) != re.findall(r"\d+", closest_name) or not re.search(r"\D", name)
    has_other_letters = len(name) == len(closest_name) and sorted(name) != sorted(closest_name)
    return (
        None
        if has_other_digits or (has_other_letters and (len(name) < _LONG_NAME or re.search(r"\d", name)))
        else closest_name
    )


_LONG_NAME = 6
"""Minimum length of a name that counts as misspelled if one letter differs; a shorter name may be a different name."""


def _is_misspelling(name: str, word: str) -> bool:
    """Return whether a name misspells a word: letters are wrong or swapped, or the end is missing."""
    from difflib import SequenceMatcher

    operations = SequenceMatcher(None, name, word).get_opcodes()
    wrong_letters = sum(
        max(end - begin, last - first) for operation, begin, end, first, last in operations if operation != "equal"
    )
    shorter, longer = sorted((name, word), key=len)
    return longer.startswith(shorter) or sorted(name) == sorted(word) or wrong_letters <= max(1, len(longer) // 4)
