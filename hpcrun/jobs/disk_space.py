"""Disk space of a run directory, checked before a job is submitted."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import permissions

if TYPE_CHECKING:
    from pathlib import Path

RUN_BYTES = 64 << 10
"""Upper bound for the bytes that a run's records, hostfile, rank.sh and first log lines take, in blocks of 4 KB."""

MAX_SWEEP_BYTES = 1 << 20
"""Maximum number of bytes that the check allocates, for sweeps with many tasks."""

DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})


def require_disk_space(folder: Path, job_count: int) -> None:
    """Require disk space for the first files that jobs write into a run directory.

    Args:
        folder: The run directory.
        job_count: The number of jobs that write into this directory.

    Raises:
        OSError: The disk or the quota is full.
    """
    file = folder / ".room"
    try:
        with open(file, "wb", opener=permissions.opener) as stream:
            os.posix_fallocate(stream.fileno(), 0, min(job_count * RUN_BYTES, MAX_SWEEP_BYTES))
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:
            raise
        # ignore other errors: the file system does not support preallocation
    finally:
        with suppress(OSError):
            file.unlink()
