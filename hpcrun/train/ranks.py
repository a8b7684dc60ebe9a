"""The job's ranks, for programs that have no use for TensorFlow."""

from __future__ import annotations

import platform
from functools import cache
from typing import TYPE_CHECKING

from hpcrun.train import failure
from hpcrun.train.world import _start_mpi, world

if TYPE_CHECKING:
    from hpcrun.train.kinds import Comm


def comm() -> Comm:
    """Start MPI where it has not started, check the number of ranks, and return the communicator of all of them.

    It starts no TensorFlow; every rank must call it, before or after `init`.

    Returns:
        mpi4py's COMM_WORLD; None without mpi4py (then there is one rank).

    Raises:
        HpcrunError: MPI started another number of ranks than the job has.
    """
    return _started()[0]


def hosts() -> tuple[str, ...]:
    """Return each rank's host name, in rank order; every rank must call it the first time."""
    return _started()[1]


@cache
def _started() -> tuple[Comm, tuple[str, ...]]:
    if world.cache_info().currsize:
        return world().comm, world().hosts
    failure.install()
    everybody, host = _start_mpi(), platform.node()
    return everybody, tuple(everybody.allgather(host)) if everybody else (host,)
