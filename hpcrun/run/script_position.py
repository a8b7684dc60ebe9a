"""Position of a thread in the user's script: file, line and function."""

from __future__ import annotations

import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

_LIBRARY_PATHS = tuple(
    {*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
    | {str(Path(__file__).parents[1]), "<"}  # "<" is for <frozen ...> and <string>
)


def script_position(frame: FrameType | None = None, *, with_library_function: bool = True) -> str:
    """Return the position of a thread in the user's script: `train.py:41 in load`.

    Args:
        frame: The thread's innermost frame (default: the main thread's).
        with_library_function: Whether to add the innermost function, if it belongs to a library.
    """
    frame = frame or sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  (documented)
    if frame is None:
        return "unknown: Python has ended"
    innermost, user_frame = frame, frame
    while user_frame.f_code.co_filename.startswith(_LIBRARY_PATHS) and user_frame.f_back:
        user_frame = user_frame.f_back
    if user_frame.f_code.co_filename.startswith(_LIBRARY_PATHS):
        return f"{_format_frame(innermost)}, outside of the script"
    library_position = "" if user_frame is innermost or not with_library_function else f" ({_format_frame(innermost)})"
    return _format_frame(user_frame) + library_position


def _format_frame(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


def format_ranks(ranks: Iterable[int]) -> str:
    """Format ranks as `rank 1` or `ranks 0, 2-5`.

    Args:
        ranks: At least one rank.
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    text = ", ".join("-".join(map(str, run)) for run in runs)
    return f"rank{'s' * (text != str(runs[0][0]))} {text}"
