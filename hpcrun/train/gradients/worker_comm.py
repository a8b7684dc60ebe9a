"""Communicators of virtual workers: threads of a rank that call collectives as if each were a rank of its own.

Worker k of rank r, of R ranks with K workers each, has the number r + R * k among R * K workers. It is the rank of the
same number in a job of R * K ranks: that rank would get the same samples of a batch.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

Result = TypeVar("Result")


class WorkerGroup:
    """The virtual workers of this rank, which run in turn, each until it calls a collective.

    Args:
        comm: The MPI communicator of the ranks.
        count: The number of workers of each rank (K).

    Attributes:
        comms: The communicator of each worker of this rank.
    """

    def __init__(self, comm: Comm, count: int) -> None:
        self.comm, self.count = comm, count
        self.comms = [WorkerComm(self, number) for number in range(count)]
        self._calls: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(_no_call, ())] * count
        self._turn, self._barrier = threading.Lock(), threading.Barrier(count, action=self._communicate)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="virtual-worker")

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Call a function with the number of each worker of this rank, from 0, in a thread of its own. Collective."""

        def run_in_turn(number: int) -> Result:
            with self._turn:
                try:
                    return function(number)
                except BaseException:
                    self._barrier.abort()  # the other workers of this rank would wait for this one
                    raise

        futures = [self._threads.submit(run_in_turn, number) for number in range(self.count)]
        errors = [error for error in (future.exception() for future in futures) if error]
        if errors:
            raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
        return [future.result() for future in futures]

    def call(self, number: int, function: Callable[..., None], *arguments: Any) -> None:
        """Let a worker wait until all workers of this rank have made the same call; the last one communicates."""
        self._calls[number] = function, arguments
        self._turn.release()
        try:
            self._barrier.wait()
        finally:
            self._turn.acquire()

    def _communicate(self) -> None:
        function = self._calls[0][0]
        function(self.comm, *zip(*(arguments for _, arguments in self._calls), strict=True))


class WorkerComm:
    """A communicator of one virtual worker, with the collectives that codecs call.

    Args:
        group: The workers of this rank.
        number: The number of the worker among those of this rank, from 0.

    Attributes:
        size: The number of workers of all ranks.
        rank: The number of the worker among the workers of all ranks.
    """

    def __init__(self, group: WorkerGroup, number: int) -> None:
        self._group, self._number = group, number
        self.size, self.rank = group.comm.size * group.count, group.comm.rank + group.comm.size * number

    def Allreduce(self, _in_place: Any, buffer: Array, operation: Any = None) -> None:  # noqa: N802  (mpi4py's name)
        """Replace an array by its sum, or the result of another operation, over all workers."""
        self._group.call(self._number, _allreduce, buffer, operation)

    def Allgather(self, outgoing: Array, incoming: Array) -> None:  # noqa: N802
        """Gather an array of each worker, in the order of the workers."""
        self._group.call(self._number, _allgather, outgoing, incoming)

    def Iallgather(self, outgoing: Array, incoming: Array) -> _CompleteRequest:  # noqa: N802
        """Gather as `Allgather` does."""
        self.Allgather(outgoing, incoming)
        return _CompleteRequest()

    def Alltoall(self, outgoing: Array, incoming: Array) -> None:  # noqa: N802
        """Send row w of an array to worker w, and receive a row of each worker."""
        self._group.call(self._number, _alltoall, outgoing, incoming)


class _CompleteRequest:
    """A request whose collective is complete."""

    def Test(self) -> bool:  # noqa: N802
        return True

    def Wait(self) -> None:  # noqa: N802
        pass


def _no_call(*_: Any) -> None:
    """Do nothing."""


def _allreduce(comm: Comm, buffers: tuple[Array, ...], operations: tuple[Any, ...]) -> None:
    from mpi4py import MPI

    total, operation = buffers[0], operations[0] or MPI.SUM
    combine = np.maximum if operation == MPI.MAX else np.add
    for buffer in buffers[1:]:
        combine(total, buffer, out=total)
    comm.Allreduce(MPI.IN_PLACE, total, operation)
    for buffer in buffers[1:]:
        buffer[...] = total


def _allgather(comm: Comm, outgoing: tuple[Array, ...], incoming: tuple[Array, ...]) -> None:
    sent = np.stack([array.reshape(-1) for array in outgoing])  # (K, n)
    received = np.empty((comm.size, *sent.shape), sent.dtype)  # (R, K, n)
    comm.Allgather(sent, received)
    ordered = received.swapaxes(0, 1)  # (K, R, n): worker k of rank r has the number r + R * k
    for array in incoming:
        array.reshape(ordered.shape)[...] = ordered


def _alltoall(comm: Comm, outgoing: tuple[Array, ...], incoming: tuple[Array, ...]) -> None:
    ranks, count = comm.size, len(outgoing)
    rows = np.stack([array.reshape(count, ranks, -1) for array in outgoing])  # (sender k, receiver l, to rank, n)
    sent = np.ascontiguousarray(rows.transpose(2, 0, 1, 3))
    received = np.empty_like(sent)  # (from rank, sender k, receiver l, n)
    comm.Alltoall(sent, received)
    for number, array in enumerate(incoming):
        array.reshape(count, ranks, -1)[...] = received[:, :, number].swapaxes(0, 1)
