"""The one exception that people see, and what makes texts fit to be seen."""

from __future__ import annotations

import re

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


_OF_LOGS = re.compile("(\x1b\\[[0-9;:]*m|[\r\b])")


class HpcrunError(Exception):
    """A user's mistake, or a cluster's: shown without a traceback.

    Args:
        message: What was given and what holds here, in plain words.
        hint: What to do about it; shown on a line of its own after ``HINT:``.
        exit_code: The exit code of the command that fails with it (2, as for wrong options).
    """

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\nHINT: {self.hint}" if self.hint else self.message


def visible(text: str) -> str:
    """Return a text whose control characters, and those that turn the order of words, are spelled out.

    Args:
        text: Lines for people, which may have words of somebody's file in them.
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_log(text: str) -> str:
    """Return a log as a terminal may be given it: colours, tabs and what redraws a line stay, as with ``less -R``.

    Args:
        text: Any part of it.
    """
    parts = _OF_LOGS.split(text)
    return "".join(part if number % 2 else visible(part) for number, part in enumerate(parts))


def nearest(name: str, known: list[str]) -> str | None:
    """Return the known name most like a mistyped one, or None where nothing is close.

    Args:
        name: What somebody typed.
        known: The names that exist here.
    """
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, n=1, cutoff=0.6)), None)
