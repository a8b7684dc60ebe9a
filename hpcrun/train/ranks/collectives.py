"""Checked collectives: ranks that make different calls get an error instead of waiting for ever."""

from __future__ import annotations

import time
import zlib
from array import array as packed
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.script_position import format_ranks, script_position
from hpcrun.train.ranks.waiting import waiting
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import ArrayLike

T = TypeVar("T")

MAX_LISTED_PARTS = 8  # of a list in an error


def checked_barrier(what: str = "a collective call") -> None:
    """Wait for all ranks without keeping a core busy, and check that they call the same collective.

    Ranks are seconds apart after imports, tracing or loading; this synchronizes them before the next collective.

    Args:
        what: A description of the collective that follows.

    Raises:
        HpcrunError: Other ranks made another call; raised on all ranks, with the same message.
    """
    from mpi4py import MPI

    comm, digest, pause = world().comm, zlib.crc32(what.encode()), 0.0
    extremes = packed("q", [digest, -digest])
    with waiting(what):
        request = comm.Iallreduce(MPI.IN_PLACE, extremes, MPI.MAX)
        while not request.Test():
            time.sleep(pause)
            pause = min(pause * 1.2 + 1e-5, 0.005)
        if extremes[0] == -extremes[1]:
            return
        gathered: dict[str, list[int]] = {}
        for rank, call in enumerate(comm.allgather(f"{what} at {script_position(deep=False)}")):
            gathered.setdefault(call, []).append(rank)
    raise HpcrunError(
        "the ranks made different calls: "
        + "; ".join(f"{format_ranks(ranks)}: {call}" for call, ranks in gathered.items()),
        hint="give allreduce() an array of one shape and dtype on all ranks"
        if all(call.startswith("allreduce()") for call in gathered)
        else "every rank must make the same calls in the same order: look for calls under `if is_chief():`",
    )


def checked_allgather(what: str, local: T) -> list[T]:
    """Gather the values of all ranks, in rank order; every rank must call this.

    Args:
        what: A description of the values.
        local: This rank's picklable value.
    """
    if world().size == 1:
        return [local]
    checked_barrier(what)
    with waiting(what):
        return list(world().comm.allgather(local))


def on_rank_0(what: str, function: Callable[[], T]) -> T:
    """Call a function on rank 0 alone, and return its result on all ranks; every rank must call this.

    Args:
        what: A description of the result.
        function: Returns something that can be pickled.

    Raises:
        HpcrunError: The function raised it, or an OSError; raised on all ranks, with the same message.
    """
    result, problem = None, None
    if world().rank == 0:
        try:
            result = function()
        except HpcrunError as error:
            problem = error.message, error.hint
        except OSError as error:
            problem = f"{error.filename or what}: {error.strerror or error}", None
    if world().size > 1:
        checked_barrier(what)
        with waiting(what):
            result, problem = world().comm.bcast((result, problem))
    if problem:
        raise HpcrunError(problem[0], hint=problem[1])
    return cast("T", result)


def barrier() -> None:
    """Wait until every rank calls this.

    Raises:
        HpcrunError: Some ranks made another call.
    """
    if world().size > 1:
        checked_barrier("barrier()")


def allreduce(array: ArrayLike) -> np.ndarray[Any, Any]:
    """Return the sum over all ranks (MPI_Allreduce with MPI_SUM); every rank must call this.

    Args:
        array: A number or an array, of one shape and dtype on all ranks.

    Returns:
        A new array of that shape and dtype; for booleans, the number of ranks with True.

    Raises:
        HpcrunError: The argument is not numeric, or is a list of arrays of several shapes; the ranks' shapes or dtypes
            differ; or some ranks made another call.
    """
    import numpy as np

    try:
        local = np.asarray(array)
    except (TypeError, ValueError):  # NumPy cannot stack it
        local = np.empty((), object)
    dtype = np.dtype(int) if local.dtype.kind == "b" else local.dtype.newbyteorder("=")
    local = np.ascontiguousarray(local, dtype).reshape(local.shape)
    numbers = local.dtype.kind in "iufc"
    description = f"{local.dtype}{list(local.shape)}" if numbers or local.shape else _describe(array)
    what = f"allreduce() of {description}"
    if world().size > 1:
        checked_barrier(what)  # before errors: an error of all ranks is printed once
    if not numbers:
        raise HpcrunError(
            f"allreduce() got {description}",
            hint="give one array of int, float32, float64 or complex numbers, which MPI can add up; "
            "allreduce several arrays one by one, or after np.concatenate([a.ravel() for a in arrays])",
        )
    if world().size == 1:
        return local.copy()
    total = np.empty_like(local)
    with waiting(what):
        world().comm.Allreduce(local, total)
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

    seed = int(np.random.randint(2**31))  # on every rank, so that the generators stay equal
    if world().size == 1:
        return seed
    checked_barrier("the shuffle's seed")
    return int(world().comm.bcast(seed))
