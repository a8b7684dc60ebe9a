"""Advice on common Python exceptions that no signature explains, from the TOML tables in the folder ``exceptions``.

The files are read in the order of their names; the first entry that matches is used. An entry has ``advice`` and

- ``pattern``: a regular expression of the exception's type and message; ``advice`` may quote its named groups, and
  ``{package}``, the package that raised the exception (unless a group has that name),
- ``library``: a regular expression of the file, normally of a library, that raised the exception,
- ``code``: a regular expression of the user's line of code, or several of them.

Entries of files with ``general = true`` match only a type or a library. A key ``unless`` of a file is a regular
expression of errors that none of its entries explains. Entries for the message of the exception or of
its cause, and advice on system errors in the message (`hpcrun.why.message_advice`), have a higher priority.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from hpcrun.frozen import frozen
from hpcrun.why.exception_text import is_instruction
from hpcrun.why.last_calls import PIP_NAMES
from hpcrun.why.literals import condense, may_match
from hpcrun.why.message_advice import advise_on_system_error
from hpcrun.why.sentences import fill
from hpcrun.why.tables import read_tables

_FOLDER_OF_PACKAGES = re.compile(r"^.*(?=/(?:site|dist)-packages/)")  # an environment is often named after a library

_ROOT_ERROR = re.compile(r"^\(\d\) ")  # one of several in a message of TensorFlow
_COMPILED_FILE = re.compile(r"^\w+/.*\.p(?:yx|xi)$")  # of Cython, relative to the folder of packages
_PACKAGE = re.compile(r"(?:.*-packages/|^(?=\w+/.*\.p(?:yx|xi)$))(\w+)")


class Advice(NamedTuple):
    """An entry of the tables; see the module docstring."""

    pattern: str
    library: str
    code: str
    advice: str
    is_general: bool
    unless: str


@frozen
class RaisedException:
    """An exception, and where it was raised; `find` looks up advice about it.

    Attributes:
        error: The type and message of the exception.
        file: The file that raised the exception; empty if unknown.
        code: The user's line of code; empty if unknown.
    """

    error: str
    file: str = ""
    code: str = ""

    def find(self, *, is_general: bool) -> str:
        """Return the advice of the first entry that matches the exception; empty if there is none."""
        library_file = _FOLDER_OF_PACKAGES.sub("", f"/{self.file}" if _COMPILED_FILE.search(self.file) else self.file)
        for entry in _find_candidates(condense(self.error)):
            if entry.is_general is not is_general or not re.search(entry.library, library_file):
                continue
            if not re.search(entry.code, self.code) or (entry.unless and re.search(entry.unless, self.error)):
                continue
            if match := re.search(entry.pattern, self.error):
                groups = match.groupdict("")
                if "{package}" in entry.advice:
                    groups.setdefault("package", self.package)
                return fill(entry.advice, groups) if groups else entry.advice
        return ""

    @property
    def package(self) -> str:
        """The package that raised the exception, by the name that pip knows; "the program" for other files."""
        match = _PACKAGE.search(self.file)
        return PIP_NAMES.get(match[1], match[1]) if match else "the program"


@lru_cache(maxsize=256)
def _find_candidates(condensed_text: str) -> tuple[Advice, ...]:
    """Return the entries whose pattern may match a text; cached, because tasks of a sweep often have the same text."""
    return tuple(entry for entry in _load() if may_match(entry.pattern, condensed_text))


def advise(error: str, cause: str = "", file: str = "", code: str = "", hint: str = "") -> str:
    """Return advice on an exception, or the advice in its message; empty if the cause depends on the program.

    Args:
        error: The exception's type and message.
        cause: The type and message of the exception that caused it; empty if there is none.
        file: The file that raised the exception.
        code: The user's line of code.
        hint: The advice in the exception's message.
    """
    exception = RaisedException(error, file, code)
    advice_on_cause = RaisedException(cause).find(is_general=False) if cause else ""
    is_quoted = "".join(_ROOT_ERROR.sub("", hint).split())[:100] in "".join(error.split())
    quoted_hint = "" if is_quoted or not hint else f"its message says: {hint}"
    if specific := exception.find(is_general=False) or advice_on_cause:
        return f"{specific}; {quoted_hint}" if quoted_hint else specific
    if is_quoted and is_instruction(hint) and "Did you mean" not in hint:
        return "do what its message says"
    return (
        quoted_hint or advise_on_system_error(error) or advise_on_system_error(cause) or exception.find(is_general=True)
    )


@cache
def _load() -> tuple[Advice, ...]:
    return tuple(
        Advice(
            entry.get("pattern", ""),
            entry.get("library", ""),
            entry.get("code", ""),
            entry["advice"],
            table.get("general", False),
            table.get("unless", ""),
        )
        for table in read_tables("exceptions/*.toml")
        for entry in table["exception"]
    )
