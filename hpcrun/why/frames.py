"""Frames of Python tracebacks, as Python, IPython, rich and loguru print them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.why.exception_text import find_code, find_marked_code

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAME = re.compile(
    r"""^\s*(?:\|\ \s*|>\ )?File\ "(?P<file>[^"]+)",\ line\ (?P<number>\d+)  # >: loguru
    |^│\ (?P<boxed>/\S+?):(?P<boxed_number>\d+)\ in\  # rich
    |^(?:File\ (?P<notebook>[^\s":]+):|(?P<cell>Cell\ In\ ?\[\d+\]),\ line\ )(?P<line>\d+)  # IPython
    |^(?:\[?(?P<listed>(?:/|~[/\\]|[A-Z]:\\)[^\s\]()]+\.(?:pyc?|pyx)|<ipython-input-\d+-\w+>)\]?(?:\(https?:\S*\))?\ in
        |Input\ In\ \[(?P<input>\d+)\],\ in)\ <?\w[^\n]*$  # IPython before 8.0, Colab
    """,
    re.VERBOSE,
)
"""Matches the heading of a frame."""

_FLAT_FRAME = re.compile(
    r'^(File "[^"\n]+", line \d+(?:, in\b.*)?)\n'
    r'(?! |$|File "|\[|Traceback |During |The above |[\w.]+(?:Error|Exception|Exit)\b)(.*)$',
    re.MULTILINE,
)
"""Matches a frame and its line of code, of a traceback whose indentation is lost."""
_INPUT_CELL = re.compile(r"^<ipython-input-(\d+)-")
_KERNEL_FILE = re.compile(r"^.*/ipykernel_\d+/\d+\.py$")


def read_frame(frame: re.Match[str], lines: Sequence[str], index: int, indent: str) -> tuple[str, str, str]:
    """Return the file, line number and line of code of a frame, whose heading is a line of the log."""
    if frame["listed"] or frame["input"]:
        number, code = find_marked_code(lines, index)
        cell = frame["input"] or "".join(_INPUT_CELL.findall(frame["listed"]))
        file = f"Cell In [{cell}]" if cell else frame["listed"].replace("\\", "/")
        return _KERNEL_FILE.sub("a cell of the notebook", file), number, code
    file = frame["file"] or frame["boxed"] or frame["notebook"] or frame["cell"]
    number = frame["number"] or frame["boxed_number"] or frame["line"]
    return file.replace("\\", "/"), number, find_code(lines, index, number, indent)


def indent_frames(text: str) -> str:
    """Return a text with the indentation that tracebacks have, as a mail or a web page may have lost it."""
    return _FLAT_FRAME.sub(r"  \1\n    \2", text)
