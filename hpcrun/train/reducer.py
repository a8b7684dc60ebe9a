"""From this rank's gradients to everybody's mean gradient."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.agreement import agree
from hpcrun.train.waiting import waiting
from hpcrun.train.world import meet, world

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
    all B samples, whatever the b_r are. In front of the gradients travel a few numbers by which the ranks stay in step:
    they cost no message of their own.

    Args:
        comm: An MPI communicator of the ranks that take part.
        piece: Bytes of one message; 0 for a message a tensor. `piece_size()` unless given.

    Attributes:
        steps: Reductions so far.
        stop: Set it to tell the other ranks, with the next reduction, that this one wants to stop.
        stops: Whether a rank had set it at the last reduction: all ranks see it change at the same step.
        halt: Likewise, to tell that this rank was told to leave the job.
        halts: Whether a rank had set that.
    """

    def __init__(self, comm: Comm, piece: int | None = None) -> None:
        self.comm = comm
        self.piece = piece_size() if piece is None else piece
        self.steps = 0
        self.stop = self.stops = self.halt = self.halts = False
        self._buffers: dict[tuple[Any, ...], _Buffer] = {}
        self._last: _Buffer | None = None

    def __call__(self, gradients: Sequence[Array], share: float) -> list[Array]:
        """Return the weighted sum over all ranks; every rank must call it, with the same shapes and dtype.

        Args:
            gradients: This rank's gradients, of one float dtype. Never written to: they may be TensorFlow's own memory.
            share: This rank's weight.

        Returns:
            Arrays of the same shapes: views of a buffer that the next call overwrites.

        Raises:
            HpcrunError: Other ranks have no more batches, or the shares do not add up to a batch.
        """
        key = (gradients[0].dtype, *(g.shape for g in gradients))
        if key not in self._buffers:
            self._buffers[key] = _Buffer(gradients, self.piece)
            meet("the first gradients' allreduce")  # the first step is the one that the ranks reach far apart
        buffer = self._last = self._buffers[key]
        buffer.head[:4] = share, self.stop, self.halt, 0
        weight, sent, cuts = buffer.flat.dtype.type(share), 0, iter(buffer.cuts)
        cut = next(cuts)
        with waiting("the gradients' allreduce of step", self.steps + 1):
            for gradient, view, end in zip(gradients, buffer.views, buffer.ends, strict=True):
                np.multiply(gradient, weight, out=view)
                while cut <= end:  # a piece goes out while it is still in the cache
                    self._sum(buffer.flat[sent:cut])
                    if not sent:
                        self._read(buffer, self.steps + 1)
                    sent, cut = cut, next(cuts, buffer.flat.size + 1)
        self.steps += 1
        return buffer.views

    def end(self) -> None:
        """Tell the other ranks that this one has no more batches; every rank must call it after as many reductions.

        Raises:
            HpcrunError: Some ranks go on.
        """
        if self._last:
            self._last.head[:4] = 0, self.stop, self.halt, 1
            with waiting("the end of the epoch"):
                self._sum(self._last.flat[: self._last.cuts[0]])
            self._read(self._last, self.steps)

    def _read(self, buffer: _Buffer, steps: int) -> None:
        shares, stop, halt, ended = buffer.head[:4]
        self.stops, self.halts = stop > 0, halt > 0
        if 0 < ended < self.comm.size:
            # All ranks are here, because all of them read the same sum.
            agree({"number of training steps so far": steps}, "give all ranks data sets of as many batches")
        if not ended and abs(shares - 1) > 1e-3:
            raise HpcrunError(
                f"the ranks' parts of a batch add up to {shares:.4g} batches",
                hint="give all ranks the same data and the same global batch size",
            )

    def _sum(self, piece: Array) -> None:
        from mpi4py import MPI

        self.comm.Allreduce(MPI.IN_PLACE, piece)


def piece_size() -> int:
    """Return the bytes of one message: ``$HPCRUN_FUSION_THRESHOLD_KB``, or what is fastest where the ranks are."""
    if given := os.environ.get("HPCRUN_FUSION_THRESHOLD_KB"):
        return int(given) * 1024
    return PIECE if len(set(world().hosts)) == 1 else 4 * PIECE


class _Buffer:
    """One aligned stretch of memory: a head of a few numbers, then an aligned view for every gradient."""

    def __init__(self, gradients: Sequence[Array], piece: int) -> None:
        dtype = gradients[0].dtype
        lanes = ALIGNMENT // dtype.itemsize
        starts = lanes + np.cumsum([0, *(-(-g.size // lanes) * lanes for g in gradients)])
        memory = np.zeros(int(starts[-1]) + lanes, dtype)
        skip = (-memory.ctypes.data % ALIGNMENT) // dtype.itemsize
        self.flat = memory[skip : skip + int(starts[-1])]
        self.head = self.flat[:lanes]
        self.ends = [int(end) for end in starts[1:]]  # each gradient's, with what pads it
        stretches = zip(starts[:-1], gradients, strict=True)
        self.views = [self.flat[start : start + g.size].reshape(g.shape) for start, g in stretches]
        step, size = piece // dtype.itemsize, self.flat.size
        self.cuts = [*range(step, size, step), size] if step else self.ends
