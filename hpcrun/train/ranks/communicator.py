"""MPI communicator whose collectives record that this rank waits for other ranks."""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from hpcrun.run.waiting import current_wait, waiting
from hpcrun.train.ranks.polling import has_idle_tasks, poll

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Comm

_COLLECTIVES = (
    *("allgather", "allreduce", "alltoall", "barrier", "bcast", "gather", "reduce", "scatter"),
    *("Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Barrier", "Bcast", "Gather", "Gatherv"),
    *("Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scatter", "Scatterv"),
)


def duplicate_communicator(comm: Comm) -> Comm:
    """Duplicate an mpi4py communicator; collectives of the duplicate are independent of the original's.

    Args:
        comm: The communicator to duplicate. Collective.
    """
    return _comm_class_with_wait_records()(comm.Dup())


@cache
def _comm_class_with_wait_records() -> Any:
    from mpi4py import MPI

    methods = {name: _record_wait(name, getattr(MPI.Intracomm, name)) for name in _COLLECTIVES}
    return type("Watched", (MPI.Intracomm,), methods)


def _record_wait(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    description = f"MPI's {name}"

    @wraps(method)
    def waiting_method(*args: Any, **kwargs: Any) -> Any:
        if current_wait():  # keep the description of the outer block, which is more specific
            return call(*args, **kwargs)
        with waiting(description):
            return call(*args, **kwargs)

    def call(comm: Comm, *args: Any, **kwargs: Any) -> Any:
        if has_idle_tasks():  # do not block while another rank may need this rank's answer
            poll(comm.Ibarrier().Test)
        return method(comm, *args, **kwargs)

    return waiting_method
