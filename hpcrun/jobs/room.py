"""Room on the disk of a run directory: asked for before a job is submitted, and told where there is none."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import permissions

if TYPE_CHECKING:
    from pathlib import Path

RUN_BYTES = 64 << 10
"""A run's records, hostfile, rank.sh and the beginnings of its logs take less, in blocks of 4 KB."""

MOST_BYTES = 1 << 20
"""Of a sweep with many tasks."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def require(folder: Path, runs: int) -> None:
    """Find out whether a run directory has room for what jobs write there at first.

    Args:
        folder: The run directory.
        runs: How many jobs it is for.

    Raises:
        OSError: It has not.
    """
    file = folder / ".room"
    try:
        with open(file, "wb", opener=permissions.opener) as opened:
            os.posix_fallocate(opened.fileno(), 0, min(runs * RUN_BYTES, MOST_BYTES))
    except OSError as error:
        if error.errno in FULL:
            raise
        # else this file system cannot tell
    finally:
        with suppress(OSError):
            file.unlink()
