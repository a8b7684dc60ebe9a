"""From this rank's gradients to everybody's mean gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.train.waiting import waiting
from hpcrun.train.world import meet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.kinds import Comm

    Array = np.ndarray[Any, Any]

# One Allreduce of a whole model touches fresh pages of MPI's temporaries every step; pieces of this many bytes stay in
# the cache and were three times as fast (102 MB between two ranks: 29 to 34 ms whole, 8 to 10 ms in pieces).
PIECE = 2 * 2**20
ALIGNMENT = 64  # bytes; TensorFlow takes an array over without a copy only when it is aligned so


class Reducer:
    """Sums gradients over all ranks, each rank's weighted by its share of the batch (a dense MPI_Allreduce).

    Rank r's gradient is a mean over its b_r samples; with the weight b_r / B the sum over the ranks is the mean over
    all B samples, whatever the b_r are.

    Args:
        comm: An MPI communicator of the ranks that take part.
    """

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self.steps = 0
        self._buffers: dict[tuple[Any, ...], _Buffer] = {}

    def __call__(self, gradients: Sequence[Array], share: float) -> list[Array]:
        """Return the weighted sum over all ranks; every rank must call it, with the same shapes and dtype.

        Args:
            gradients: This rank's gradients, of one float dtype. Never written to: they may be TensorFlow's own memory.
            share: This rank's weight.

        Returns:
            Arrays of the same shapes: views of a buffer that the next call overwrites.
        """
        self.steps += 1
        key = (gradients[0].dtype, *(g.shape for g in gradients))
        if key not in self._buffers:
            self._buffers[key] = _Buffer(gradients)
            meet("the first gradients' allreduce")  # the first step is the one that the ranks reach far apart
        buffer = self._buffers[key]
        step, sent = PIECE // buffer.flat.itemsize, 0
        weight = buffer.flat.dtype.type(share)
        for gradient, view, end in zip(gradients, buffer.views, buffer.ends, strict=True):
            np.multiply(gradient, weight, out=view)
            while end - sent >= step:  # a piece goes out while it is still in the cache
                self._sum(buffer.flat[sent : sent + step])
                sent += step
        if sent < buffer.flat.size:
            self._sum(buffer.flat[sent:])
        return buffer.views

    def _sum(self, piece: Array) -> None:
        from mpi4py import MPI

        with waiting("the gradients' allreduce of step", self.steps):
            self.comm.Allreduce(MPI.IN_PLACE, piece)


class _Buffer:
    """One aligned stretch of memory with an aligned view for every gradient."""

    def __init__(self, gradients: Sequence[Array]) -> None:
        dtype = gradients[0].dtype
        lanes = ALIGNMENT // dtype.itemsize
        starts = np.cumsum([0, *(-(-g.size // lanes) * lanes for g in gradients)])
        memory = np.zeros(int(starts[-1]) + lanes, dtype)
        skip = (-memory.ctypes.data % ALIGNMENT) // dtype.itemsize
        self.flat = memory[skip : skip + int(starts[-1])]
        self.ends = [int(start) + g.size for start, g in zip(starts[:-1], gradients, strict=True)]
        stretches = zip(starts[:-1], self.ends, gradients, strict=True)
        self.views = [self.flat[start:end].reshape(g.shape) for start, end, g in stretches]
