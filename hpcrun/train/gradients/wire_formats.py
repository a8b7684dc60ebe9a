"""Allreduce of gradients: unrounded, as 16-bit numbers, or hierarchical by host.

``HPCRUN_WIRE`` is the format of numbers on the network: ``float32`` (unchanged, the default), or ``bfloat16`` or
``float16`` for half the bytes. These pay on slow networks only. ResNet-50's 102 MB took, between two hosts at 1 Gbit/s,
870 ms as float32, 460 as bfloat16 and 530 as float16; at 10 Gbit/s 130, 100 and 165; and in shared memory 40, 60 and
130. ``bfloat16`` has float32's range and 8 significant bits. ``float16`` has 11, but only between 6e-8 and 65504:
larger numbers become infinite, which a `LossScaleOptimizer` handles, and smaller ones 0.

``HPCRUN_HIERARCHICAL=1`` sums within each host first and then between the hosts, if all hosts have the same number of
ranks, and more than one. MPICH's MPI_Allreduce already sends the numbers between hosts once per host, and was as fast
or faster, so it is off by default.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.buffers import ALIGNMENT
from hpcrun.train.settings import read_switch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from hpcrun.train.gradients.buffers import Piece
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]
    Call = Callable[..., None]

# One Allreduce of a whole model touches fresh pages of MPI's temporary buffers in every step; pieces of this size stay
# in the cache and were three times as fast (102 MB between two ranks: 29 to 34 ms whole, 8 to 10 ms in pieces). Between
# hosts too: 79 ms instead of 122 over TCP without a limit, 87 instead of 112 at 10 Gbit/s, 858 and 866 at 1 Gbit/s.
PIECE_BYTES = 2 * 2**20
CACHE_VALUES = 2**16  # values; conversion buffers of this size stay in the cache
POLL_SECONDS = 5e-5  # s
_UPPER = int(sys.byteorder == "little")  # index of the upper half of 32 bits


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
        exact: Whether numbers are sent unrounded. The head of a reduction, by which the ranks stay synchronized, must
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
            piece: A piece of a buffer in memory from `memory`.
        """
        self.sum(piece.sums)


class HalfPrecisionAllReduce(AllReduce):
    """Allreduce of float32 numbers that are sent as 16 bits each; other dtypes are sent unchanged.

    MPI cannot sum such numbers on all platforms, and 16-bit sums would lose digits with every rank. So each rank sums
    one shard, in float32 and in the order of the ranks (MPI_Alltoall), and rounds the sum for the way back
    (MPI_Allgather): as many bytes as MPI_Allreduce's ring needs for 16-bit numbers.
    """

    exact = False

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        super().__init__(comm, call)
        self._memory: dict[int, Array] = {}
        self._scratch = np.empty(CACHE_VALUES, np.float32)

    def sum(self, piece: Array) -> None:
        """Leave on all ranks the sum over the ranks, the same to the last bit.

        Args:
            piece: This rank's contiguous numbers, overwritten; as many on all ranks.
        """
        ranks, rank = self.comm.size, self.comm.rank
        if piece.dtype != np.float32 or ranks == 1:
            super().sum(piece)
            return
        size = -(-piece.size // ranks)  # of a shard; the last shards may be shorter or empty
        shards = [piece[r * size : (r + 1) * size] for r in range(ranks)]
        if size not in self._memory:
            self._memory[size] = np.zeros((2, ranks, size), np.uint16)
        outgoing, incoming = self._memory[size]
        others = [r for r in range(ranks) if r != rank]
        with np.errstate(all="ignore"):  # overflows become infinite, as intended
            for r in others:
                self._convert(self._encode, shards[r], outgoing[r])
            self.call(self.comm, "Alltoall", outgoing, incoming)
            for r in others:
                self._convert(self._add, incoming[r], shards[rank])
            self._convert(self._encode, shards[rank], outgoing[rank])
            self.call(self.comm, "Allgather", outgoing[rank], incoming)
            for r in range(ranks):
                self._convert(self._decode, incoming[r], shards[r])

    def _convert(self, function: Callable[[Array, Array], None], source: Array, target: Array) -> None:
        for start in range(0, min(source.size, target.size), CACHE_VALUES):
            end = min(start + CACHE_VALUES, source.size, target.size)
            function(source[start:end], target[start:end])

    def _add(self, halves: Array, total: Array) -> None:
        values = self._scratch[: total.size]
        self._decode(halves, values)
        np.add(total, values, out=total)

    def _encode(self, values: Array, halves: Array) -> None:
        """Round float32 numbers to the nearest 16-bit ones, ties to even."""
        raise NotImplementedError

    def _decode(self, halves: Array, values: Array) -> None:
        """Convert 16-bit numbers to float32."""
        raise NotImplementedError


class Float16AllReduce(HalfPrecisionAllReduce):
    """Allreduce of float32 numbers that are sent as IEEE 754 binary16.

    NumPy's conversion takes 3 to 17 times as long, longest for small numbers, such as gradients.
    """

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        super().__init__(comm, call)
        self._values = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
        self._scratch_bits = np.empty((2, CACHE_VALUES), np.int32)

    def _encode(self, values: Array, halves: Array) -> None:
        power, count = self._scratch_bits[:, : values.size]
        added = self._scratch[: values.size]
        # The power of two at or below |value|, from 2^-14, below which float16's numbers are evenly spaced, to 2^16.
        np.bitwise_and(values.view(np.int32), 0x7F800000, out=power)
        np.clip(power, 113 << 23, 143 << 23, out=power)
        # Near 1.5 * 2^13 times that, float32's numbers are as far apart as float16's near the value: adding it rounds,
        # and the difference between the bit patterns counts those steps.
        np.add(power, (13 << 23) + (1 << 22), out=count)
        np.add(values, count.view(np.float32), out=added)
        np.subtract(added.view(np.int32), count, out=count)
        np.abs(count, out=count)
        np.right_shift(power, 13, out=power)
        np.add(count, power, out=count)
        np.minimum(count.view(np.uint32), (113 + 31) << 10, out=count.view(np.uint32))  # infinity
        np.subtract(count, 113 << 10, out=count)
        halves[:] = count
        halves |= values.view(np.uint16)[_UPPER::2] & 0x8000
        if np.isnan(np.add.reduce(values)):
            halves[np.isnan(values)] = 0x7E00

    def _decode(self, halves: Array, values: Array) -> None:
        np.take(self._values, halves, out=values, mode="clip")


class BFloat16AllReduce(HalfPrecisionAllReduce):
    """Allreduce of float32 numbers that are sent as their upper 16 bits."""

    def _encode(self, values: Array, halves: Array) -> None:
        bits, rounded = values.view(np.uint32), self._scratch.view(np.uint32)[: values.size]
        np.right_shift(bits, 16, out=rounded)
        np.bitwise_and(rounded, 1, out=rounded)
        np.add(rounded, 0x7FFF, out=rounded)
        np.add(rounded, bits, out=rounded)
        np.right_shift(rounded, 16, out=rounded)
        halves[:] = rounded
        if np.isnan(np.add.reduce(values)):  # the carry would turn a NaN like 0x7FFFFFFF into a number
            halves[np.isnan(values)] = 0x7FC0

    def _decode(self, halves: Array, values: Array) -> None:
        bits = values.view(np.uint32)
        bits[:] = halves
        np.left_shift(bits, 16, out=bits)


class HierarchicalAllReduce(AllReduce):
    """Allreduce within each host first, then of one shard per rank with its counterparts on the other hosts.

    Args:
        comm: An MPI communicator of the ranks that take part; all of them must call this.
        hosts: Each rank's host, in rank order; `has_even_hosts` must be true.
        call: How to wait.
        across: The allreduce between the hosts.
    """

    def __init__(
        self, comm: Comm, hosts: Sequence[Hashable], call: Call = call_blocking, across: type[AllReduce] = AllReduce
    ) -> None:
        super().__init__(comm, call)
        host = hosts[comm.rank]
        self.local = comm.Split(hosts.index(host))
        self.across = across(comm.Split(hosts[: comm.rank].count(host)), call)
        self.exact = self.across.exact
        self._shards: dict[tuple[Any, int], Array] = {}

    def sum(self, piece: Array) -> None:
        """Leave on all ranks the sum over the ranks, the same to the last bit.

        Args:
            piece: This rank's contiguous numbers, overwritten; as many on all ranks.
        """
        ranks = self.local.size
        counts = [piece.size // ranks + (r < piece.size % ranks) for r in range(ranks)]
        key = piece.dtype, counts[self.local.rank]
        if key not in self._shards:
            self._shards[key] = np.empty(key[1], piece.dtype)
        shard = self._shards[key]
        self.call(self.local, "Reduce_scatter", piece, shard, counts)
        self.across.sum(shard)
        self.call(self.local, "Allgatherv", shard, [piece, counts])


WIRE_FORMATS: dict[str, type[AllReduce]] = {
    "float32": AllReduce,
    "float16": Float16AllReduce,
    "bfloat16": BFloat16AllReduce,
}


def choose_allreduce(comm: Comm, hosts: Sequence[Hashable], call: Call = call_blocking) -> AllReduce:
    """Create the allreduce that ``$HPCRUN_WIRE`` and ``$HPCRUN_HIERARCHICAL`` select.

    Args:
        comm: An MPI communicator of the ranks that take part; all of them must call this.
        hosts: Each rank's host, in rank order.
        call: How to wait.

    Raises:
        HpcrunError: The wire format is unknown.
    """
    name = os.environ.get("HPCRUN_WIRE") or "float32"
    if name not in WIRE_FORMATS:
        raise HpcrunError(f"HPCRUN_WIRE={name}: unknown wire format", hint=f"one of {', '.join(WIRE_FORMATS)}")
    if read_switch("HPCRUN_HIERARCHICAL", default=False) and has_even_hosts(hosts):
        return HierarchicalAllReduce(comm, hosts, call, WIRE_FORMATS[name])
    return WIRE_FORMATS[name](comm, call)


def has_even_hosts(hosts: Sequence[Hashable]) -> bool:
    """Return whether there are several hosts with the same number of ranks, more than one."""
    counts = {hosts.count(host) for host in hosts}
    return len(counts) == 1 and 1 < counts.pop() < len(hosts)
