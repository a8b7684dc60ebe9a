"""Where a program of another language than Python failed, from the backtrace in its log."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LINES = 40
"""Maximum number of lines after a message that may belong to its backtrace."""

MAX_LENGTH = 2000
"""Maximum number of characters of a line that are read."""

_PLACE = re.compile(
    r"(?<![\w./~$-])(?P<file>[\w./~$-]{1,300}\.(?:java|scala|kts?|groovy|clj|cs|fs|vb|[mc]?js|ts|rb|lua|ml|nim|zig|d|go|rs|php|swift|f|F"
    r"|f(?:90|95|03|08)|F90|c|cc|cpp|cxx|cu|hip|h|hpp|p[lm]|jl|tcl))(?:\"?, line |:line |[:(])(?P<number>\d+)"
)
"""Matches the file and line in a frame of a backtrace."""
_OF_LIBRARY = re.compile(
    r"\bat (?:javax?|jdk|sun|com\.sun|scala|kotlinx?|org\.(?:apache|codehaus)|akka|io\.netty|groovy|clojure|py4j)[./]"
    r"|node:|node_modules/|\(internal/|/rustc/|/usr/(?:include|lib|share)/|sanitizer|libgfortran|/libstdc"
)
_OF_BACKTRACE = re.compile(
    r"^(?:$|\s|/|#\d|Image +PC +Routine|\S+ +[0-9A-F]{8,16} "
    r"|Raised |Called |Caused by: |(?:Current )?[Ss]tack ?trace|Error termination|Program received signal"
    r"|Backtrace for this error|(?:READ|WRITE) of size)"
)
_INTEL_ROW = re.compile(r"^\S+ +[0-9A-F]{8,16} +\S+ +(?P<number>\d+) +(?P<file>\S{1,300}\.[fF]\w{0,3})\s*$")
"""Matches a row of the table that Intel's Fortran prints: image, address, routine, line and source."""
_FRAME = re.compile(
    r"(?:^|[\] :])\[? ?\d{1,3}\]? +(?:\[[\d,]+\]<std\w+>:)?(?P<file>[^\s(:]{0,300}?\.so[\w.-]{0,40})"
    r"\((?P<symbol>\w*)[^)]*\)"
)
_OF_SYSTEM = re.compile(r"/(?:libc|libpthread|ld-linux-x86-64|libgcc_s|libucs|libstdc\+\+)[.-][^/]*$")
_PACKAGE = re.compile(r"^.*-packages/")


def find_libraries(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the library in which a backtrace begins, and the first of another Python package above it.

    Args:
        lines: The lines of a log, of which those of backtraces are read.
    """
    frames = [frame for line in lines if ".so" in line and (frame := _FRAME.search(line[:MAX_LENGTH]))]
    frames = [frame for frame in frames if not _OF_SYSTEM.search(f"/{frame['file']}")]
    if not frames:
        return ()
    first = frames[0]
    name = _shorten(first["file"])
    has_name = first["symbol"] and not first["symbol"].startswith("_")
    callers = (_shorten(frame["file"]) for frame in frames if "-packages/" in frame["file"])
    caller = next((file for file in callers if file.partition("/")[0] != name.partition("/")[0]), "")
    return tuple(filter(None, (f"{name} ({first['symbol']})" if has_name else name, caller)))


def _shorten(file: str) -> str:
    return _PACKAGE.sub("", file) if "-packages/" in file else file.rpartition("/")[2]


def find_place(lines: Iterable[str]) -> str:
    """Return the user's file and line in the backtrace that begins after a message; empty if there is none.

    Args:
        lines: The lines after the message.
    """
    for line in islice(lines, MAX_LINES):
        if not _OF_BACKTRACE.match(line):
            return ""
        if match := _INTEL_ROW.match(line[:MAX_LENGTH]):
            return f"{match['file']}, line {match['number']}"
        if (match := _PLACE.search(line[:MAX_LENGTH])) and not _OF_LIBRARY.search(line):
            return f"{match['file']}, line {match['number']}"
    return ""
