"""MPI communicator whose collective calls mark that this rank waits in them."""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from hpcrun.train.ranks.waiting import current_wait, waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Comm

_COLLECTIVES = (
    *("allgather", "allreduce", "alltoall", "barrier", "bcast", "gather", "reduce", "scatter"),
    *("Allgather", "Allgatherv", "Allreduce", "Alltoall", "Alltoallv", "Barrier", "Bcast", "Gather", "Gatherv"),
    *("Reduce", "Reduce_scatter", "Reduce_scatter_block", "Scatter", "Scatterv"),
)


def duplicate_communicator(comm: Comm) -> Comm:
    """Return a duplicate of an mpi4py communicator, independent of the script's calls on the original.

    Args:
        comm: The original; all of its ranks must call this.
    """
    return _marked_class()(comm.Dup())


@cache
def _marked_class() -> Any:
    from mpi4py import MPI

    methods = {name: _marked(name, getattr(MPI.Intracomm, name)) for name in _COLLECTIVES}
    return type("Watched", (MPI.Intracomm,), methods)


def _marked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    what = f"MPI's {name}"

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current_wait():  # an outer mark describes it better
            return method(*args, **kwargs)
        with waiting(what):
            return method(*args, **kwargs)

    return call
