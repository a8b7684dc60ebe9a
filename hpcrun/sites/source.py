"""Text files that are read only once, so that hpcrun uses exactly the text that it checked."""

from __future__ import annotations

import os
import re
import stat
import time
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

_CONTROL_CHARACTER = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters that only some programs treat as line ends, or that move a terminal's cursor."""

CLOCK_RESOLUTION_NS = 100_000_000
"""Resolution of a file system's timestamps: two changes within this time may look like one."""


def file_state(file: Path) -> tuple[int, ...]:
    """Return a value that changes with a file's content, owner or mode; unique for a file that has just changed.

    Raises:
        OSError: The file does not exist.
    """
    file_stat, now_ns = file.stat(), time.time_ns()
    if now_ns - file_stat.st_ctime_ns < CLOCK_RESOLUTION_NS:
        return (now_ns,)
    return (file_stat.st_ctime_ns, file_stat.st_size, file_stat.st_ino)


MAX_CHARACTERS = 2**26
"""Maximum number of characters of a file."""


def _open_nonblocking(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)  # reading a pipe without a writer would block


@frozen
class SiteSource:
    """A site file, a template, or the record of a job to resubmit.

    Attributes:
        file: The path of the file.
        text: The content of the file.
        file_stat: The owner and mode of the file when it was read.
        is_record: Whether the file is a job's record. Only the owner of a run directory can create a record, so the
            permissions of its parent folders, which a lab may share, are not checked.
    """

    file: Path
    text: str
    file_stat: os.stat_result
    is_record: bool = False

    @classmethod
    def read(cls, file: Path) -> SiteSource:
        """Read a file.

        Raises:
            OSError: The file cannot be read.
            UnicodeDecodeError: The file is not a text file.
            HpcrunError: The file contains control characters; the message contains the line number.
        """
        with open(file, encoding="utf-8", newline="", opener=_open_nonblocking) as opened:
            file_stat = os.fstat(opened.fileno())
            text = opened.read(MAX_CHARACTERS + 1) if stat.S_ISREG(file_stat.st_mode) else None
        if text is None or len(text) > MAX_CHARACTERS:
            message = "larger than 64 MB" if text else "not a regular file"
            raise HpcrunError(f"{file}: {message}", hint="it may be a link; ls -lL shows its target")
        if found := _CONTROL_CHARACTER.search(text):
            line = text.count("\n", 0, found.start()) + 1
            message = f"{file}:{line}: control character {found[0]!r}, which could hide code"
            raise HpcrunError(
                message, hint="lines end with \\n or \\r\\n; bash writes others as $'\\r', TOML as \"\\r\""
            )
        return cls(file.absolute(), text, file_stat)
