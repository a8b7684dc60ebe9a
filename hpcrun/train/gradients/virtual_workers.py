"""Virtual workers: each rank stands for several workers of a larger job, to study convergence on few ranks.

``HPCRUN_VIRTUAL_WORKERS``, which the option ``--virtual-workers`` sets, is the number K of workers of each rank. A rank
computes the gradients of K parts of its shard of a batch one after the other. Each worker compresses its gradients with
residuals and random numbers of its own, as a rank of a job with K times as many ranks does.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.run.job import read_whole_number
from hpcrun.run.waiting import waiting
from hpcrun.train.gradients.allreduce import AllReduce
from hpcrun.train.gradients.buffers import Buffer
from hpcrun.train.gradients.codecs import CODECS, create_codec, is_automatic
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.gradients.worker_comm import WorkerGroup
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import keras_backend, read_switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

_UNSUPPORTED = ("HPCRUN_OVERLAP", "HPCRUN_HIERARCHICAL", "HPCRUN_CUDA_AWARE")


def count_workers() -> int:
    """Return the number of virtual workers of each rank, from ``$HPCRUN_VIRTUAL_WORKERS``; 1 without any.

    Raises:
        HpcrunError: The variable is not a whole number, or is set with the JAX backend or without mpi4py.
    """
    number = read_whole_number("HPCRUN_VIRTUAL_WORKERS", 1, "virtual workers", "4, or 1 for none", minimum=1)
    if number > 1 and keras_backend() == "jax":
        raise HpcrunError(
            f"--virtual-workers={number}: virtual workers need TensorFlow or PyTorch, and Keras uses JAX",
            hint="set KERAS_BACKEND=tensorflow, or leave out --virtual-workers",
        )
    return number


def is_distributed() -> bool:
    """Return whether gradients of several workers are summed: there are several ranks, or virtual workers."""
    return world().size > 1 or count_workers() > 1


class WorkerCodecs(AllReduce):
    """The codecs of this rank's virtual workers; as an allreduce of its own, a sum of unrounded numbers.

    Args:
        comm: The MPI communicator of the ranks.
        workers: The number of workers of each rank.

    Attributes:
        group: The virtual workers of this rank.
        codecs: The codec of each worker of this rank.
        sent_bytes: How many bytes the first worker would have sent so far if each worker were a rank.
    """

    def __init__(self, comm: Comm, workers: int) -> None:
        super().__init__(comm)
        self.group = WorkerGroup(comm, workers)
        self.codecs = [create_codec(worker) for worker in self.group.comms]
        self.chunk_bytes = self.codecs[0].chunk_bytes

    def exchange(self, name: str, *buffers: Any) -> None:
        """Call a collective, whose bytes are not counted."""
        self.call(self.comm, name, *buffers)

    def state(self) -> list[Array]:
        """Return the state of all workers: minus the number of workers and of each worker's arrays, then the arrays."""
        states = [codec.state() for codec in self.codecs]
        lengths = np.array([len(states), *map(len, states)])
        return [-lengths, *(array for arrays in states for array in arrays)] if any(states) else []

    def restore(self, states: Sequence[Sequence[Array]]) -> None:
        """Restore the state of all workers, given `split_workers` of the states of all ranks."""
        for codec in self.codecs:
            codec.restore(states)


def split_workers(states: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
    """Return the states of all workers in the order of their numbers, given those of all ranks.

    Args:
        states: The `AllReduce.state` of each rank; a rank without virtual workers is one worker.
    """
    by_rank = []
    for state in states:
        if not state or state[0].ndim > 1:
            by_rank.append([state])
            continue
        ends = np.cumsum([1, *-state[0][1:]]).tolist()
        by_rank.append([state[start:stop] for start, stop in pairwise(ends)])
    return [rank_states[number] for number in range(max(map(len, by_rank), default=0)) for rank_states in by_rank]


class VirtualReducer(Reducer):
    """Weighted sum of the gradients of all virtual workers of all ranks.

    Args:
        comm: The MPI communicator of the ranks.
        workers: The number of virtual workers of each rank.

    Raises:
        HpcrunError: A setting is on that virtual workers do not support, or there is no MPI.
    """

    def __init__(self, comm: Comm, workers: int) -> None:
        if variable := next((name for name in _UNSUPPORTED if read_switch(name, default=False)), None):
            raise HpcrunError(
                f"{variable}=1 has no effect with --virtual-workers={workers}",
                hint=f"leave out {variable} or --virtual-workers",
            )
        if is_automatic():
            raise HpcrunError(
                f"--compress=auto measures real ranks, and this job has --virtual-workers={workers}",
                hint=f"name a codec: {', '.join(CODECS)}",
            )
        if comm is None:
            raise HpcrunError(
                f"--virtual-workers={workers} needs mpi4py, which this Python environment does not have",
                hint="pip install 'hpcrun-slurm[train-cpu]'",
            )
        self.codecs = WorkerCodecs(comm, workers)
        super().__init__(comm, allreduce=self.codecs)
        self.workers = workers
        self._worker_buffers: dict[tuple[Any, ...], list[Buffer]] = {}
        (self._header,) = Buffer([np.zeros(0, np.float32)], 0, self.codecs.memory, with_header=True).chunks

    def reduce_workers(
        self, gradients: Sequence[Array], samples: Array, batch_size: float, paths: tuple[str, ...] = ()
    ) -> list[Array]:
        """Return the weighted sum of the gradients of all workers of all ranks. Collective.

        Args:
            gradients: The gradients of the first worker of this rank, then those of the next, of one float dtype.
            samples: The number of samples of each worker of this rank, (workers,).
            batch_size: The number of samples of the batch, over all ranks; 0 if this rank has no sample.
            paths: The paths of the variables.

        Returns:
            Arrays of the shapes of one worker's gradients, as views of a buffer that the next call overwrites.

        Raises:
            HpcrunError: The first batch does not divide among the workers; other ranks have no more batches.
        """
        shares = [np.float32(count / batch_size if batch_size else 0) for count in samples]
        if not self.steps:
            self._require_equal_shares(samples, batch_size)
        count = len(gradients) // self.workers
        of_workers = [gradients[number * count : (number + 1) * count] for number in range(self.workers)]
        key = (paths, gradients[0].dtype, *(gradient.shape for gradient in of_workers[0]))
        if key not in self._worker_buffers:
            self._worker_buffers[key] = [
                Buffer(of_workers[number], self.chunk_bytes, codec.memory, with_header=False, exact=codec.exact)
                for number, codec in enumerate(self.codecs.codecs)
            ]
        buffers, self._header_chunk = self._worker_buffers[key], self._header

        def reduce_one(number: int) -> None:
            codec, weight = self.codecs.codecs[number], gradients[0].dtype.type(shares[number])
            for chunk in buffers[number].chunks:
                codec.pack(chunk, of_workers[number], weight)
                codec.reduce(chunk)

        with waiting("the gradients' allreduce of step", self.steps + 1):
            self._reduce_header(self._header, float(sum(shares)), has_ended=False)
            self._read_header(self._header, self.steps + 1)
            self.codecs.group.run(reduce_one)
        self.codecs.sent_bytes = self.codecs.codecs[0].sent_bytes
        self.steps += 1
        return buffers[0].views

    def _require_equal_shares(self, samples: Array, batch_size: float) -> None:
        """Refuse a first batch that does not divide among the workers. Collective."""
        from mpi4py import MPI

        size = self.comm.size * self.workers
        with waiting("the first gradients of virtual workers"):
            batch_size = self.comm.allreduce(float(batch_size), MPI.MAX)
            is_uneven = self.comm.allreduce(int(any(count * size != batch_size for count in samples)), MPI.MAX)
        if is_uneven:
            raise HpcrunError(
                f"a batch of {batch_size:.0f} samples does not divide among {size} workers "
                f"(ranks: {self.comm.size}, virtual workers of each: {self.workers})",
                hint=f"choose a batch size that is a multiple of {size}, or another --virtual-workers",
            )
