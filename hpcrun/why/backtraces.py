"""The library in which a compiled program crashed, from the backtrace in its log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FRAME = re.compile(
    r"(?:^|[\] :])\[? ?\d{1,3}\]? +(?:\[[\d,]+\]<std\w+>:)?(?P<file>[^\s(:]*\.so[\w.-]*)\((?P<symbol>\w*)[^)]*\)"
)
_OF_SYSTEM = re.compile(r"/(?:libc|libpthread|ld-linux-x86-64|libgcc_s|libucs|libstdc\+\+)[.-][^/]*$")
_PACKAGE = re.compile(r"^.*-packages/")


def find_libraries(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the library in which a backtrace begins, and the first of another Python package above it.

    Args:
        lines: The lines of a log, of which those of backtraces are read.
    """
    frames = [frame for line in lines if ".so" in line and (frame := _FRAME.search(line))]
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
