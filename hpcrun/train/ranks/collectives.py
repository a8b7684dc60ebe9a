"""Checked collectives: ranks that make different calls get an error instead of waiting forever."""

from __future__ import annotations

import zlib
from array import array as packed
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hpcrun.errors import HpcrunError
from hpcrun.run.script_position import format_ranks, script_position
from hpcrun.run.waiting import waiting
from hpcrun.train.ranks.polling import poll
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import ArrayLike

    from hpcrun.train.types import Comm

T = TypeVar("T")

MAX_LISTED_PARTS = 8  # maximum number of list items in an error message


def checked_barrier(description: str = "a collective call", comm: Comm = None) -> None:
    """Wait for all ranks without keeping a core busy, and check that they call the same collective.

    Ranks can be seconds apart after imports, tracing or loading; a barrier synchronizes them before a collective.

    Args:
        description: Description of the collective that follows.
        comm: Communicator of the ranks to wait for (default: all ranks).

    Raises:
        HpcrunError: Ranks made different calls; raised on all ranks, with the same message.
    """
    from mpi4py import MPI

    comm, digest = comm or world().comm, zlib.crc32(description.encode())
    digest_range = packed("q", [digest, -digest])
    with waiting(description):
        poll(comm.Iallreduce(MPI.IN_PLACE, digest_range, MPI.MAX).Test)
        if digest_range[0] == -digest_range[1]:
            return
        gathered: dict[str, list[int]] = {}
        for rank, call in enumerate(comm.allgather(f"{description} at {script_position(with_library_function=False)}")):
            gathered.setdefault(call, []).append(rank)
    raise HpcrunError(
        "the ranks made different calls: "
        + "; ".join(f"{format_ranks(ranks)}: {call}" for call, ranks in gathered.items()),
        hint="give allreduce() an array of one shape and dtype on all ranks"
        if all(call.startswith("allreduce()") for call in gathered)
        else "every rank must make the same calls in the same order: look for calls under `if is_chief():`",
    )


def checked_allgather(description: str, local_value: T) -> list[T]:
    """Gather the values of all ranks, in rank order. Collective.

    Args:
        description: Description of the values.
        local_value: This rank's picklable value.
    """
    if world().size == 1:
        return [local_value]
    checked_barrier(description)
    with waiting(description):
        return list(world().comm.allgather(local_value))


def on_rank_0(description: str, function: Callable[[], T]) -> T:
    """Call a function on rank 0 only, and return its result on all ranks. Collective.

    Args:
        description: Description of the result.
        function: Function with a picklable result.

    Raises:
        HpcrunError: The function raised an HpcrunError or OSError; raised on all ranks, with the same message.
    """
    result, problem = None, None
    if world().rank == 0:
        try:
            result = function()
        except HpcrunError as error:
            problem = error.message, error.hint
        except OSError as error:
            problem = f"{error.filename or description}: {error.strerror or error}", None
    if world().size > 1:
        checked_barrier(description)
        with waiting(description):
            result, problem = world().comm.bcast((result, problem))
    if problem:
        raise HpcrunError(problem[0], hint=problem[1])
    return cast("T", result)


def barrier() -> None:
    """Wait until every rank calls this function.

    Raises:
        HpcrunError: Ranks made different calls.
    """
    if world().size > 1:
        checked_barrier("barrier()")


def allreduce(array: ArrayLike) -> np.ndarray[Any, Any]:
    """Return the sum over all ranks (MPI_Allreduce with MPI_SUM). Collective.

    Args:
        array: A number or an array, of one shape and dtype on all ranks.

    Returns:
        A new array of the same shape and dtype; for booleans, the number of ranks with True, as int.

    Raises:
        HpcrunError: The argument is not numeric, or is a list of arrays of several shapes; the ranks' shapes or dtypes
            differ; or ranks made different calls.
    """
    import numpy as np

    try:
        local_array = np.asarray(array)
    except (TypeError, ValueError):  # NumPy cannot convert the argument
        local_array = np.empty((), object)
    dtype = np.dtype(int) if local_array.dtype.kind == "b" else local_array.dtype.newbyteorder("=")
    local_array = np.ascontiguousarray(local_array, dtype).reshape(local_array.shape)
    is_numeric = local_array.dtype.kind in "iufc"
    description = (
        f"{local_array.dtype}{list(local_array.shape)}" if is_numeric or local_array.shape else _describe(array)
    )
    call = f"allreduce() of {description}"
    if world().size > 1:
        checked_barrier(call)  # wait for all ranks before raising the error, so that it is printed only once
    if not is_numeric:
        raise HpcrunError(
            f"allreduce() got {description}",
            hint="give one array of int, float32, float64 or complex numbers, which MPI can add up; "
            "allreduce several arrays one by one, or after np.concatenate([a.ravel() for a in arrays])",
        )
    if world().size == 1:
        return local_array.copy()
    total = np.empty_like(local_array)
    with waiting(call):
        world().comm.Allreduce(local_array, total)
    return total


def _describe(description: object) -> str:
    """Describe an argument that is not an array, such as `list of float64[3], float64[4]`."""
    kind = type(description).__name__
    if not isinstance(description, list | tuple):
        return kind
    parts = [
        f"{p.dtype}{list(p.shape)}" if hasattr(p, "shape") else type(p).__name__ for p in description[:MAX_LISTED_PARTS]
    ]
    return f"{kind} of {len(description)}: " + ", ".join(parts) + ", ..." * (len(description) > MAX_LISTED_PARTS)


def shared_seed() -> int:
    """Return rank 0's next seed from NumPy's global generator, which `keras.utils.set_random_seed` sets."""
    import numpy as np

    seed = int(np.random.randint(2**31))  # draw the seed on every rank, so that the ranks' generators stay equal
    if world().size == 1:
        return seed
    checked_barrier("the shuffle's seed")
    return int(world().comm.bcast(seed))
