"""Warning at the end of a script if its ranks never communicated."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from pathlib import Path

from hpcrun import permissions
from hpcrun.run.waiting import waited_seconds

_TRAINING_LIBRARIES = ("keras", "tensorflow", "torch", "jax")
_registered_pids: list[int] = []
_rank_and_size: list[int] = []
_is_queried: list[bool] = []


def warn_at_exit() -> None:
    """Register an exit handler that warns if ranks have not communicated; a second call has no effect."""
    if not _registered_pids:
        _registered_pids.append(os.getpid())
        atexit.register(_warn_if_alone)


def record_rank(rank: int, size: int) -> None:
    """Record this process's rank and the number of ranks.

    Args:
        rank: The rank, from 0.
        size: The number of ranks.
    """
    _rank_and_size[:] = [rank, size]


def record_query() -> None:
    """Record that the script queried its rank, because the script may then divide the work itself."""
    _is_queried[:] = [True]


def _warn_if_alone() -> None:
    rank_text, size_text = (os.environ.get(name, "") for name in ("HPCRUN_RANK", "HPCRUN_NTASKS"))
    rank, size = _rank_and_size or (int(rank_text or 0), int(size_text or 1))
    if rank > 0 or size == 1 or os.getpid() not in _registered_pids:
        return
    folder = os.environ.get("HPCRUN_RUN_DIR")
    if waited_seconds() or _is_queried:
        _write_marker(folder, "met")
    elif any(name in sys.modules for name in _TRAINING_LIBRARIES):
        text = (
            "hpcrun.train was imported but not used\n"
            "HINT: model = hpcrun.train.Model(model), or hpcrun.train.Optimizer(optimizer) in your own loop\n"
        )
        with suppress(OSError, ValueError):
            if folder:
                _write_marker(folder, "alone", text)  # the job script prints this file
            else:
                sys.stderr.write(f"WARNING: each of the {size} ranks worked alone: {text}")
                sys.stderr.flush()


def _write_marker(folder: str | None, name: str, text: str = "") -> None:
    """Write a marker file in the run directory, for `hpcrun status` and the job script."""
    if folder:
        with suppress(OSError), open(Path(folder, name), "w", encoding="utf-8", opener=permissions.opener) as file:
            file.write(text)
