"""A text file as it was read: what is checked is what is used."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from pathlib import Path

_CONTROL = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What means a line's end to one reader and nothing to another, or moves a terminal's cursor."""

CLOCK_RESOLUTION_NS = 100_000_000
"""Of two changes closer together, a file system's clock may tell only one."""


def file_state(file: Path) -> tuple[int, ...]:
    """Return what is another whenever a file has changed, also its owner or mode; of one that has just changed, always.

    Raises:
        OSError: There is no such file.
    """
    status, now = file.stat(), time.time_ns()
    if now - status.st_ctime_ns < CLOCK_RESOLUTION_NS:
        return (now,)
    return (status.st_ctime_ns, status.st_size, status.st_ino)


MAX_CHARACTERS = 2**26
"""So many characters no such file has."""


def _open_nonblocking(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)  # a pipe that nobody writes would be waited for


@dataclass(frozen=True)
class Source:
    """A site file, a template, or the record of a job that is submitted once more.

    Attributes:
        file: Where it was.
        text: What was in it.
        status: Whose it was, and who might write it, when it was read.
        record: Whether it is a job's record. Nobody but its owner can make one of the owner's, so the folders above,
            in which a lab may keep its runs, tell nothing more.
    """

    file: Path
    text: str
    status: os.stat_result
    record: bool = False

    @classmethod
    def read(cls, file: Path) -> Source:
        """Read a file.

        Raises:
            OSError: It cannot be read.
            UnicodeDecodeError: It is no text.
            HpcrunError: It has control characters; names the line.
        """
        with open(file, encoding="utf-8", newline="", opener=_open_nonblocking) as opened:
            status = os.fstat(opened.fileno())
            text = opened.read(MAX_CHARACTERS + 1) if stat.S_ISREG(status.st_mode) else None
        if text is None or len(text) > MAX_CHARACTERS:
            what = "larger than 64 MB" if text else "not a regular file"
            raise HpcrunError(f"{file}: {what}", hint="a link may lead there; ls -lL shows what it is")
        if found := _CONTROL.search(text):
            line = text.count("\n", 0, found.start()) + 1
            what = f"{file}:{line}: the control character {found[0]!r} stands there, where code could hide"
            raise HpcrunError(what, hint="lines end with \\n or \\r\\n; bash writes others as $'\\r', TOML as \"\\r\"")
        return cls(file.absolute(), text, status)
