"""Sums of gradients over the ranks with MPI_Allreduce; base class of all kinds of allreduce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.train.gradients.buffers import ALIGNMENT, select_values
from hpcrun.train.ranks.polling import poll

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.gradients.buffers import Chunk
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]
    Call = Callable[..., None]

# An Allreduce of a whole model touches new pages of MPI's temporary buffers in every step. Chunks of this size stay in
# the cache, and were three times as fast (102 MB between two ranks: 8 to 10 ms in chunks, 29 to 34 ms as one message).
# Between two hosts over TCP, chunks took 79 ms and one message 122 ms without a rate limit; 87 and 112 ms at 10 Gbit/s;
# 858 and 866 ms at 1 Gbit/s.
CHUNK_BYTES = 2 * 2**20
POLL_SECONDS = 5e-5  # longest pause of `call_polling`


def call_blocking(comm: Comm, name: str, *buffers: Any) -> None:
    """Call a blocking collective; MPI keeps this thread's core busy."""
    getattr(comm, name)(*buffers)


def call_polling(comm: Comm, name: str, *buffers: Any) -> None:
    """Call a nonblocking collective and poll its request, so that other threads can use the core."""
    poll(getattr(comm, f"I{name.lower()}")(*buffers).Test, POLL_SECONDS)


def bytes_sent(name: str, size: float, ranks: int) -> float:
    """Return how many bytes each rank sends in a collective, with the algorithms that send least (ring, pairwise).

    Args:
        name: The collective: Allreduce, Allgather or Alltoall.
        size: The size in bytes of the largest buffer of a rank: for Allgather and Alltoall, the data of all ranks.
        ranks: The number of ranks.
    """
    return size * (ranks - 1) / ranks * (2 if name == "Allreduce" else 1)


class AllReduce:
    """Allreduce of unrounded numbers (MPI_Allreduce).

    Args:
        comm: The MPI communicator of the participating ranks.
        call: `call_blocking` or `call_polling`, which calls a collective and waits for its end.

    Attributes:
        exact: Whether numbers are sent unrounded, which the header of a reduction requires.
        float_first: How many steps are sent unrounded at the beginning of a training.
        sent_bytes: How many bytes this rank has sent to other ranks so far, by `bytes_sent`.
        chunk_bytes: Default size of a message in bytes.
    """

    exact = True
    float_first = 0
    chunk_bytes = CHUNK_BYTES

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        self.comm = comm
        self.call = call
        self.sent_bytes = 0.0

    def exchange(self, name: str, *buffers: Any) -> None:
        """Call a collective, and count the bytes that this rank sends."""
        largest = max(getattr(buffer, "nbytes", 0) for buffer in buffers)  # also of PyTorch's tensors
        self.sent_bytes += bytes_sent(name, largest, self.comm.size)
        self.call(self.comm, name, *buffers)

    def sum(self, chunk: Array) -> None:
        """Replace an array by its sum over the ranks, bit-identical on all ranks. Collective.

        Args:
            chunk: This rank's contiguous array, of the same size on all ranks; overwritten.
        """
        from mpi4py import MPI

        self.exchange("Allreduce", MPI.IN_PLACE, chunk)

    def memory(self, size: int, chunk_size: int, dtype: np.dtype[Any]) -> tuple[Array, list[Array], list[list[Array]]]:  # noqa: ARG002
        """Allocate memory for the numbers of a buffer. Collective.

        Args:
            size: Number of values in the buffer.
            chunk_size: Number of values in the largest message.
            dtype: The dtype of the numbers.

        Returns:
            Memory for the sums; the slots in which this rank packs its messages alternately (empty if it packs them
            into the memory of the sums); and the slots of each rank (empty unless all ranks can read them).
        """
        memory = np.zeros(size + ALIGNMENT // dtype.itemsize, dtype)
        offset = (-memory.ctypes.data % ALIGNMENT) // dtype.itemsize
        return memory[offset : offset + size], [], []

    def pack(self, chunk: Chunk, gradients: Sequence[Array], weight: np.floating[Any]) -> None:
        """Pack this rank's weighted gradients into a chunk, which `reduce` sums next.

        Args:
            chunk: A chunk of a buffer that `memory` allocated.
            gradients: All gradients of the buffer; not modified.
            weight: Their weight, a number of their dtype.
        """
        for number, values, memory in chunk.segments:
            np.multiply(select_values(gradients[number], values), weight, out=memory)

    def reduce(self, chunk: Chunk) -> None:
        """Sum the packed values of all ranks into `chunk.sums`.

        Args:
            chunk: A chunk of a buffer that `memory` allocated; the same object for the same gradients in each step.
        """
        self.sum(chunk.sums)

    def state(self) -> list[Array]:
        """Return the state that this rank keeps between steps, such as the rounding errors of each `Chunk`."""
        return []

    def restore(self, states: Sequence[Sequence[Array]]) -> None:
        """Restore the state from a checkpoint, before the first step. Collective.

        Args:
            states: The `state` of each rank that wrote the checkpoint, in rank order; the number of ranks may have
                changed.
        """
