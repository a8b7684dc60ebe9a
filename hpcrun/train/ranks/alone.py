"""What is said at the end of a script that runs on several ranks, and whose ranks never met."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from pathlib import Path

from hpcrun.train.ranks.waiting import waited

_TRAIN = ("keras", "tensorflow", "torch", "jax")
_process: list[int] = []
_ranks: list[int] = []
_asked: list[bool] = []


def watch() -> None:
    """Look at this process's end whether its rank met others; once is enough, twice does no harm."""
    if not _process:
        _process.append(os.getpid())
        atexit.register(_tell)


def started(rank: int, size: int) -> None:
    """Note which rank this is, of how many.

    Args:
        rank: From 0.
        size: The number of ranks.
    """
    _ranks[:] = [rank, size]


def asked() -> None:
    """Note that the script asked for its place among the ranks: then it gives them parts of the work by itself."""
    _asked[:] = [True]


def _tell() -> None:
    number, promised = (os.environ.get(name, "") for name in ("HPCRUN_RANK", "HPCRUN_NTASKS"))
    rank, size = _ranks or (int(number or 0), int(promised or 1))
    if rank > 0 or size == 1 or os.getpid() not in _process:
        return
    folder = os.environ.get("HPCRUN_RUN_DIR")
    if waited() or _asked:
        _leave(folder, "met")
    elif any(name in sys.modules for name in _TRAIN):
        _leave(folder, "met")  # or the job's script would say it once more
        _leave(folder, "alone")
        text = (
            f"WARNING: each of the {size} ranks trained alone: hpcrun.train was imported, and nothing went through it\n"
            "HINT: model = hpcrun.train.Model(model), or hpcrun.train.Optimizer(optimizer) in a loop of your own\n"
        )
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def _leave(folder: str | None, name: str) -> None:
    """Leave a trace in the run directory, for `hpcrun status` and for the job's script."""
    if folder:
        with suppress(OSError):
            Path(folder, name).touch(mode=0o600)
