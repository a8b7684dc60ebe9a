"""A text file as it was read, so that the checked text is the text in use."""

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
"""Control characters that only some readers treat as line ends, or that move a terminal's cursor."""

CLOCK_RESOLUTION_NS = 100_000_000
"""Resolution of a file system's timestamps: two changes within this time may look like one."""


def file_state(file: Path) -> tuple[int, ...]:
    """Return a value that changes with a file's content, owner or mode; for a file changed just now it is unique.

    Raises:
        OSError: The file does not exist.
    """
    status, now = file.stat(), time.time_ns()
    if now - status.st_ctime_ns < CLOCK_RESOLUTION_NS:
        return (now,)
    return (status.st_ctime_ns, status.st_size, status.st_ino)


MAX_CHARACTERS = 2**26
"""Maximum number of characters of a file."""


def _open_nonblocking(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)  # reading a pipe without a writer would block


@dataclass(frozen=True)
class Source:
    """A site file, a template, or the record of a job to resubmit.

    Attributes:
        file: Its path.
        text: Its content.
        status: Its owner and mode when it was read.
        record: Whether it is a job's record. Only its owner can create it, so the permissions of the folders above,
            where a lab may keep its runs, do not matter.
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
            UnicodeDecodeError: It is not a text file.
            HpcrunError: It contains control characters; the message names the line.
        """
        with open(file, encoding="utf-8", newline="", opener=_open_nonblocking) as opened:
            status = os.fstat(opened.fileno())
            text = opened.read(MAX_CHARACTERS + 1) if stat.S_ISREG(status.st_mode) else None
        if text is None or len(text) > MAX_CHARACTERS:
            what = "larger than 64 MB" if text else "not a regular file"
            raise HpcrunError(f"{file}: {what}", hint="it may be a link; ls -lL shows its target")
        if found := _CONTROL.search(text):
            line = text.count("\n", 0, found.start()) + 1
            what = f"{file}:{line}: control character {found[0]!r}, which could hide code"
            raise HpcrunError(what, hint="lines end with \\n or \\r\\n; bash writes others as $'\\r', TOML as \"\\r\"")
        return cls(file.absolute(), text, status)
