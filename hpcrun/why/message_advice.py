"""Advice on common messages (system errors, exit codes) that no signature explains.

The tables in ``messages`` are read in the order of their file names; the first entry whose ``pattern`` matches is used.
Files with ``kind = "system"`` contain errors of the operating system, networks and GPUs. Files with ``kind = "words"``
contain words that may be part of a path, so they are not searched for in paths; words in files with ``kind = "codes"``
have this meaning only in messages of compiled programs, and a different meaning in Python exceptions.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from hpcrun.why.literals import condense, may_match
from hpcrun.why.tables import read_tables

_TABLES = ("system", "message")
_PATH = re.compile(r"[\w.~-]*/\S+")


@lru_cache(maxsize=256)
def advise(message: str) -> str:
    """Return the meaning of a message and a fix; empty if they depend on the program.

    Args:
        message: The message, a line of a log.
    """
    return _find(message, *_TABLES) or _find(_PATH.sub("", message), "words", "codes")


@lru_cache(maxsize=256)
def advise_on_exception(message: str) -> str:
    """Return the meaning of the message of a Python exception and a fix; empty if they depend on the program.

    Args:
        message: The type and message of the exception.
    """
    return _find(message, *_TABLES) or _find(_PATH.sub("", message), "words")


@lru_cache(maxsize=256)
def advise_on_system_error(message: str) -> str:
    """Return the meaning of an error of the operating system or a GPU in a message; empty without one."""
    return _find(message, "system")


def _find(message: str, *kinds: str) -> str:
    candidates = (entry for kind in kinds for entry in _find_candidates(kind, condense(message)))
    return next((entry["advice"] for entry in candidates if re.search(entry["pattern"], message)), "")


@lru_cache(maxsize=256)
def _find_candidates(kind: str, condensed_text: str) -> tuple[dict[str, str], ...]:
    """Return the entries whose pattern may match a text; cached, because tasks of a sweep often have the same text."""
    return tuple(entry for entry in _load(kind) if may_match(entry["pattern"], condensed_text))


@cache
def _load(kind: str) -> tuple[dict[str, str], ...]:
    tables = read_tables("messages/*.toml")
    return tuple(entry for table in tables if table.get("kind", "message") == kind for entry in table["message"])
