"""Hierarchical allreduce: first within each host, then between hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.train.gradients.allreduce import AllReduce, call_blocking
from hpcrun.train.gradients.buffers import Chunk

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]


class HierarchicalAllReduce(AllReduce):
    """Allreduce within each host, then between hosts, where ranks of equal local rank sum one shard.

    Args:
        comm: An MPI communicator of the participating ranks. Collective.
        hosts: Each rank's host, in rank order; `has_equal_host_sizes` must be true.
        call: `call_blocking` or `call_polling`, which calls a collective and waits for its end.
        inter_host_allreduce: Class of the allreduce between hosts.
    """

    def __init__(
        self,
        comm: Comm,
        hosts: Sequence[Hashable],
        call: Call = call_blocking,
        inter_host_allreduce: type[AllReduce] = AllReduce,
    ) -> None:
        super().__init__(comm, call)
        local_ranks = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]  # index of each rank on its host
        self.local = comm.Split(hosts.index(hosts[comm.rank]))
        self.across = inter_host_allreduce(comm.Split(local_ranks[comm.rank]), call)
        self._counterparts = [
            rank for rank, local_rank in enumerate(local_ranks) if local_rank == local_ranks[comm.rank]
        ]
        self.exact = self.across.exact
        self._memory: dict[tuple[Any, int], Array] = {}
        self._shards: dict[Chunk, Chunk] = {}

    def reduce(self, chunk: Chunk) -> None:
        """Sum the packed values of all ranks into `chunk.sums`.

        Args:
            chunk: A chunk of a buffer that `memory` allocated.
        """
        ranks, values = self.local.size, chunk.sums
        counts = [values.size // ranks + (r < values.size % ranks) for r in range(ranks)]
        if chunk not in self._shards:
            key = values.dtype, counts[self.local.rank]
            memory = self._memory.setdefault(key, np.empty(key[1], values.dtype))  # reused, to stay in the cache
            self._shards[chunk] = Chunk(memory, memory, [], [], must_complete=True)
        shard = self._shards[chunk]
        self.call(self.local, "Reduce_scatter", values, shard.packed, counts)
        self.across.reduce(shard)
        self.sent_bytes = self.across.sent_bytes  # to other hosts
        self.call(self.local, "Allgatherv", shard.sums, [values, counts])

    def state(self) -> list[Array]:
        """Return the state of the allreduce between hosts."""
        return self.across.state()

    def restore(self, states: Sequence[Sequence[Array]]) -> None:
        """Restore the allreduce between hosts, but only if the number of ranks is unchanged: the shards depend on it.

        Args:
            states: The `state` of each rank that wrote the checkpoint, in rank order.
        """
        if len(states) == self.comm.size:
            self.across.restore([states[rank] for rank in self._counterparts])


def has_equal_host_sizes(hosts: Sequence[Hashable]) -> bool:
    """Return whether there are several hosts, each with the same number (at least two) of ranks."""
    counts = {hosts.count(host) for host in hosts}
    return len(counts) == 1 and 1 < counts.pop() < len(hosts)
