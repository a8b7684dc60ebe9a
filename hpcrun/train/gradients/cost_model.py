"""Cost model of codecs: how long the sum of gradients takes in a codec, on a given link.

The time is the sum of three parts: the latency of each collective, the bytes that a rank sends at the bandwidth of its
link, and the processor time of the codec, of which a part may pass while data are sent. A dry run of the codec's own
functions counts the collectives and bytes and measures the processor time, so the model has no formula of a codec.
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


TCP_SECONDS_PER_BYTE = 8e-10
"""Processor time of sending by TCP between two hosts, in s/byte: a core sends about 1.25 GB/s."""


class Link(NamedTuple):
    """The link of a rank to the other ranks.

    Attributes:
        latency: The time of a collective without data, in s.
        bandwidth: The rate at which a rank sends, in bytes/s.
        seconds_per_byte: The processor time of sending, in s/byte.
    """

    latency: float
    bandwidth: float
    seconds_per_byte: float = 0.0


class CodecCost(NamedTuple):
    """What the sum of a model's gradients costs a rank in a codec.

    Attributes:
        collectives: The number of collectives.
        sent_bytes: How many bytes the rank sends.
        seconds: The processor time of the codec in s, without that of MPI.
        overlapped: The part of it that passes while data are sent.
    """

    collectives: int
    sent_bytes: float
    seconds: float
    overlapped: float = 0.0

    def predict(self, link: Link) -> float:
        """Return the time of the sum on a link, in s."""
        sending = max(self.sent_bytes / link.bandwidth, self.overlapped + self.sent_bytes * link.seconds_per_byte)
        return self.collectives * link.latency + sending + self.seconds - self.overlapped


class DryComm:
    """A communicator whose other ranks send what this rank sends, at no cost.

    Args:
        size: The number of ranks.

    Attributes:
        calls: The number of collectives so far.
        seconds: The processor time spent in collectives so far, in s.
        overlapped: The processor time between collectives that are under way together, in s.
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.calls, self.seconds, self.overlapped = 0, 0.0, 0.0
        self._last_event: float | None = None  # of collectives that are under way: the processor time without MPI's

    def Allreduce(self, _in_place: Any, _buffer: Array, _operation: Any = None) -> None:  # noqa: N802  (mpi4py's name)
        """Leave the array as it is."""
        self.calls += 1

    def Allgather(self, outgoing: Array, incoming: Array) -> None:  # noqa: N802
        """Copy the array once per rank."""
        self._copy(outgoing.reshape(1, -1), incoming)

    def Iallgather(self, outgoing: Array, incoming: Array) -> DryComm:  # noqa: N802
        """Copy the array once per rank; the communicator is the request."""
        self._add_overlap()
        self.calls -= self._last_event is not None  # the latency passes while the collectives before are under way
        self.Allgather(outgoing, incoming)
        self._last_event = self._time()
        return self

    def Alltoall(self, outgoing: Array, incoming: Array) -> None:  # noqa: N802
        """Copy the rows."""
        self._copy(outgoing.reshape(self.size, -1), incoming)

    def Test(self) -> bool:  # noqa: N802
        """Return that the request is complete."""
        return True

    def Wait(self) -> None:  # noqa: N802
        """Return at once, because the request is complete."""
        self._add_overlap()

    def finish(self) -> None:
        """End the collectives that are under way: what follows does not overlap with them."""
        self._last_event = None

    def _time(self) -> float:
        return thread_time() - self.seconds

    def _add_overlap(self) -> None:
        if self._last_event is not None:
            now = self._time()
            self.overlapped += now - self._last_event
            self._last_event = now

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
    costs, weight = [], gradients[0].dtype.type(1 / ranks)
    for _ in range(rounds):
        before = comm.calls, allreduce.sent_bytes, thread_time() - comm.seconds, comm.overlapped
        for chunk in buffer.chunks:
            allreduce.pack(chunk, gradients, weight)
            allreduce.reduce(chunk)
            comm.finish()
        after = comm.calls, allreduce.sent_bytes, thread_time() - comm.seconds, comm.overlapped
        collectives, sent_bytes, seconds, overlapped = np.subtract(after, before).tolist()
        # MPI still sends a chunk while the next one is encoded.
        overlapped = max(overlapped, seconds * (1 - 1 / len(buffer.chunks)))
        costs.append(CodecCost(collectives, sent_bytes, seconds, overlapped))
    return min(costs, key=lambda cost: cost.seconds)


def fit_link(seconds: float, cost: CodecCost, latency: float) -> Link:
    """Return the link on which a sum takes a measured time.

    Args:
        seconds: The time of the sum, in s.
        cost: The cost of the sum.
        latency: The time of a collective without data, in s.
    """
    transfer = max(seconds - cost.collectives * latency - (cost.seconds - cost.overlapped), 0.1 * seconds)
    busy = max(transfer - cost.overlapped, 0.0) / cost.sent_bytes
    return Link(latency, cost.sent_bytes / transfer, min(busy, TCP_SECONDS_PER_BYTE))
