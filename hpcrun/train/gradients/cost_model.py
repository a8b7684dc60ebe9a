"""Cost model of codecs: how long the sum of gradients takes in a codec, on a given link.

The time is the sum of three parts: the latency of each collective, the bytes that a rank sends at the bandwidth of its
link, and the processor time of the codec. A dry run of the codec's own functions counts the collectives and bytes and
measures the processor time, so the model has no formula of a codec.
"""

from __future__ import annotations

from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpcrun.train.gradients.buffers import Buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.gradients.allreduce import AllReduce

    Array = np.ndarray[Any, Any]


class Link(NamedTuple):
    """The link of a rank to the other ranks.

    Attributes:
        latency: The time of a collective without data, in s.
        bandwidth: The rate at which a rank sends, in bytes/s.
    """

    latency: float
    bandwidth: float


class CodecCost(NamedTuple):
    """What the sum of a model's gradients costs a rank in a codec.

    Attributes:
        collectives: The number of collectives.
        sent_bytes: How many bytes the rank sends.
        seconds: The processor time of the codec in s, without that of MPI.
    """

    collectives: int
    sent_bytes: float
    seconds: float

    def predict(self, link: Link) -> float:
        """Return the time of the sum on a link, in s."""
        return self.collectives * link.latency + self.sent_bytes / link.bandwidth + self.seconds


class DryComm:
    """A communicator whose other ranks send what this rank sends, at no cost.

    Args:
        size: The number of ranks.

    Attributes:
        calls: The number of collectives so far.
        seconds: The processor time spent in collectives so far, in s.
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls, self.seconds = 0, 0.0

    def Allreduce(self, _in_place: Any, _buffer: Array, _operation: Any = None) -> None:  # noqa: N802  (mpi4py's name)
        """Leave the array as it is."""
        self.calls += 1

    def Allgather(self, outgoing: Array, incoming: Array) -> None:  # noqa: N802
        """Copy the array once per rank."""
        self._copy(outgoing.reshape(1, -1), incoming)

    def Iallgather(self, outgoing: Array, incoming: Array) -> DryComm:  # noqa: N802
        """Copy the array once per rank; the communicator is the request."""
        self.Allgather(outgoing, incoming)
        return self

    def Alltoall(self, outgoing: Array, incoming: Array) -> None:  # noqa: N802
        """Copy the rows."""
        self._copy(outgoing.reshape(self.size, -1), incoming)

    def Test(self) -> bool:  # noqa: N802
        """Return that the request is complete."""
        return True

    def Wait(self) -> None:  # noqa: N802
        """Return at once, because the request is complete."""

    def _copy(self, rows: Array, incoming: Array) -> None:
        start = thread_time()
        incoming.reshape(self.size, -1)[...] = rows
        self.seconds += thread_time() - start
        self.calls += 1


def measure_codec(codec: type[AllReduce], gradients: Sequence[Array], ranks: int, rounds: int = 2) -> CodecCost:
    """Measure the cost of a codec, in a dry run on this rank alone.

    Processor time does not depend on other programs of the host. Other threads of a matrix product work at the same
    time, and do not count.

    Args:
        codec: The codec.
        gradients: The gradients of a step, or arrays of their shapes; float32.
        ranks: The number of ranks of the job.
        rounds: How often the codec runs; the fastest round counts, because the first touches new memory.
    """
    comm = DryComm(ranks)
    allreduce = codec(comm)
    buffer = Buffer(gradients, allreduce.chunk_bytes, allreduce.memory, with_header=False, exact=allreduce.exact)
    costs = []
    for _ in range(rounds):
        for chunk in buffer.chunks:
            for number, values, memory in chunk.segments:
                memory[...] = gradients[number] if values is None else gradients[number].reshape(-1)[values]
        before = comm.calls, allreduce.sent_bytes, thread_time() - comm.seconds
        for chunk in buffer.chunks:
            allreduce.reduce(chunk)
        after = comm.calls, allreduce.sent_bytes, thread_time() - comm.seconds
        costs.append(CodecCost(*np.subtract(after, before).tolist()))
    return min(costs, key=lambda cost: cost.seconds)


def fit_link(seconds: float, cost: CodecCost, latency: float) -> Link:
    """Return the link on which a sum takes a measured time.

    Args:
        seconds: The time of the sum, in s.
        cost: The cost of the sum.
        latency: The time of a collective without data, in s.
    """
    transfer = max(seconds - cost.collectives * latency - cost.seconds, 0.1 * seconds)
    return Link(latency, cost.sent_bytes / transfer)
