"""Sums of gradients over the ranks by MPI_Allreduce, the class that wire formats and other sums replace."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.train.gradients.buffers import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.gradients.buffers import Piece
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]
    Call = Callable[..., None]

# One Allreduce of a whole model touches fresh pages of MPI's temporary buffers in every step; pieces of this size stay
# in the cache and were three times as fast (102 MB between two ranks: 29 to 34 ms whole, 8 to 10 ms in pieces). Between
# hosts too: 79 ms instead of 122 over TCP without a limit, 87 instead of 112 at 10 Gbit/s, 858 and 866 at 1 Gbit/s.
PIECE_BYTES = 2 * 2**20
POLL_SECONDS = 5e-5  # s


def call_blocking(comm: Comm, name: str, *buffers: Any) -> None:
    """Call a blocking collective; MPI keeps this thread's core busy until it is done."""
    getattr(comm, name)(*buffers)


def call_polling(comm: Comm, name: str, *buffers: Any) -> None:
    """Call a nonblocking collective and poll it, so that other threads can use the core."""
    request = getattr(comm, f"I{name.lower()}")(*buffers)
    while not request.Test():
        time.sleep(POLL_SECONDS)


class AllReduce:
    """Allreduce of unrounded numbers (MPI_Allreduce).

    Args:
        comm: The MPI communicator of the participating ranks.
        call: How to wait: `call_blocking` or `call_polling`.

    Attributes:
        exact: Whether numbers are sent unrounded. The header of a reduction, by which the ranks stay synchronized, must
            be.
        piece: The best size of a message in bytes.
    """

    exact = True
    piece = PIECE_BYTES

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        self.comm = comm
        self.call = call

    def sum(self, piece: Array) -> None:
        """Leave on all ranks the sum over the ranks, the same to the last bit.

        Args:
            piece: This rank's contiguous numbers, overwritten; as many on all ranks.
        """
        from mpi4py import MPI

        self.call(self.comm, "Allreduce", MPI.IN_PLACE, piece)

    def memory(self, size: int, piece: int, dtype: np.dtype[Any]) -> tuple[Array, list[Array], list[list[Array]]]:  # noqa: ARG002
        """Allocate memory for numbers; all ranks must call this.

        Args:
            size: The number of numbers.
            piece: The largest number of them in one message.
            dtype: Their dtype.

        Returns:
            The memory of their sums; the slots in which this rank packs messages in turn, unless it packs them into the
            memory of the sums; and the slots of each rank, if they are visible to the others.
        """
        memory = np.zeros(size + ALIGNMENT // dtype.itemsize, dtype)
        skip = (-memory.ctypes.data % ALIGNMENT) // dtype.itemsize
        return memory[skip : skip + size], [], []

    def reduce(self, piece: Piece) -> None:
        """Sum the packed values of all ranks into `piece.sums`.

        Args:
            piece: A piece of a buffer in memory from `memory`; the same object for the same gradients in each step.
        """
        self.sum(piece.sums)

    def state(self) -> list[Array]:
        """Return what this rank keeps from step to step, such as the rounding errors of each `Piece`."""
        return []

    def restore(self, states: Sequence[Sequence[Array]]) -> None:
        """Continue from a checkpoint; all ranks call this before their first step.

        Args:
            states: The `state` of each rank that wrote the checkpoint, in their order; the number of ranks may differ.
        """
