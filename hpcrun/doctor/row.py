"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Row:
    """One thing that was looked at.

    Attributes:
        check: What it is.
        level: ok; warning, where jobs may run all the same; error, where they will not.
        found: What is there.
        fix: What to do about it; empty where all is well.
    """

    check: str
    level: Level
    found: str
    fix: str = ""


def ok(check: str, found: str) -> Row:
    """Return a row on what is well."""
    return Row(check, "ok", found)


def warning(check: str, found: str, fix: str) -> Row:
    """Return a row on what may do harm."""
    return Row(check, "warning", found, fix)


def error(check: str, found: str, fix: str) -> Row:
    """Return a row on what keeps jobs from running."""
    return Row(check, "error", found, fix)
