"""From this rank's gradients to everybody's mean gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.data.batch_share import record_share
from hpcrun.train.gradients.buffers import ALIGNMENT, Buffer
from hpcrun.train.gradients.shared_memory import SharedMemoryAllReduce, is_one_host
from hpcrun.train.gradients.wire_formats import AllReduce, call_blocking, call_polling, choose_allreduce
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import checked_barrier
from hpcrun.train.ranks.waiting import waiting
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import read_number, read_switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.gradients.buffers import Piece
    from hpcrun.train.gradients.wire_formats import Call
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

_SWITCH = "HPCRUN_SHARED_MEMORY"


class Reducer:
    """Sums gradients over all ranks, each rank's weighted by its share of the batch.

    Rank r's gradient is a mean over its b_r samples; with the weight b_r / B the sum over the ranks is the mean over
    all B samples, whatever the b_r are. In front of the gradients travel a few numbers by which the ranks stay in step:
    they cost no message of their own.

    Args:
        comm: An MPI communicator of the ranks that take part.
        piece: Bytes of one message; 0 for a message a tensor. As ``$HPCRUN_FUSION_THRESHOLD_KB`` says unless given, or
            as many as suit what sums them.
        allreduce: What sums a message over the ranks. `choose_allreduce` makes it unless given.
        overlap: Whether the backward pass goes on meanwhile: then a step's gradients come in groups, and waiting leaves
            the core to it.

    Attributes:
        on_device: Whether it takes tensors as they are, and not arrays in the host's memory.
        steps: Reductions so far.
        stop_requested: Set it to tell the other ranks, with the next reduction, that this one wants to stop.
        stop_agreed: Whether a rank had set it at the last reduction: all ranks see it change at the same step.
        exit_requested: Likewise, to tell that this rank was told to leave the job.
        exit_agreed: Whether a rank had set that.
        keepalive: Functions of compiled steps that hold this, and go with it.
    """

    on_device = False

    def __init__(
        self, comm: Comm, piece: int | None = None, allreduce: AllReduce | None = None, *, overlap: bool = False
    ) -> None:
        self.comm = comm
        self.overlap = overlap
        call = call_polling if overlap else call_blocking
        self.allreduce = allreduce or _choose_allreduce(comm, call)
        self._exact_allreduce = AllReduce(comm, call)
        self.piece = _piece_size(self.allreduce.piece) if piece is None else piece
        self.steps = 0
        self.stop_requested = self.stop_agreed = self.exit_requested = self.exit_agreed = False
        self.keepalive: list[Any] = []
        self._buffers: dict[tuple[Any, ...], Buffer] = {}
        self._last: Piece | None = None

    def __call__(self, gradients: Sequence[Array], share: float, group: int = 0, last: bool = True) -> list[Array]:
        """Return the weighted sum over all ranks; every rank must call it, with the same shapes and dtype.

        Args:
            gradients: This rank's gradients, of one float dtype. Never written to: they may be TensorFlow's own memory.
            share: This rank's weight.
            group: Which of a step's groups of gradients these are; groups come in order, from 0 on.
            last: Whether it is the step's last one.

        Returns:
            Arrays of the same shapes: views of a buffer that the next call for the same group overwrites.

        Raises:
            HpcrunError: Other ranks have no more batches, or the shares do not add up to a batch.
        """
        key = (group, gradients[0].dtype, *(g.shape for g in gradients))
        if key not in self._buffers:
            checked_barrier(
                "the first gradients' allreduce"
            )  # the first step is the one that the ranks reach far apart
            self._buffers[key] = Buffer(
                gradients, self.piece, self.allreduce.memory, headed=group == 0, exact=self.allreduce.exact
            )
        buffer = self._buffers[key]
        weight = gradients[0].dtype.type(share)
        with waiting("the gradients' allreduce of step", self.steps + 1):
            for piece in buffer.pieces:
                for number, values, place in piece.segments:
                    gradient = gradients[number]
                    np.multiply(gradient if values is None else gradient.reshape(-1)[values], weight, out=place)
                # It goes out while it is still in the cache.
                if group == 0 and piece is buffer.pieces[0]:
                    self._last = piece
                    self._reduce_head(piece, share, ended=False)
                    self._read_head(piece, self.steps + 1)
                else:
                    self.allreduce.reduce(piece)
        self.steps += last
        return buffer.views

    def end_epoch(self) -> None:
        """Tell the other ranks that this one has no more batches; every rank must call it after as many reductions.

        Raises:
            HpcrunError: Some ranks go on.
        """
        if self._last:
            with waiting("the end of the epoch"):
                self._reduce_head(self._last, 0, ended=True)
            self._read_head(self._last, self.steps)

    def _reduce_head(self, piece: Piece, share: float, *, ended: bool) -> None:
        if not ended:
            record_share(share)
        head = piece.packed
        head[0], head[1], head[2], head[3] = share, self.stop_requested, self.exit_requested, ended
        (self.allreduce if self.allreduce.exact else self._exact_allreduce).reduce(piece)

    def _read_head(self, piece: Piece, steps: int) -> None:
        shares, stop, halt, ended = piece.sums[:4].tolist()
        self.stop_agreed, self.exit_agreed = stop > 0, halt > 0
        if 0 < ended < self.comm.size:
            # All ranks are here, because all of them read the same sum.
            require_agreement({"number of training steps so far": steps}, "give all ranks data sets of as many batches")
        if not ended and abs(shares - 1) > 1e-3:
            raise HpcrunError(
                f"the ranks' parts of a batch add up to {shares:.4g} batches",
                hint="give all ranks the same data and the same global batch size",
            )


def _piece_size(default: int) -> int:
    size = read_number("HPCRUN_FUSION_THRESHOLD_KB", default / 1024, "KB", "2048, or 0 for a message a tensor") * 1024
    return max(int(size), ALIGNMENT) if size else 0  # the head of a reduction is not cut


def _choose_allreduce(comm: Comm, call: Call) -> AllReduce:
    plain = choose_allreduce(comm, world().hosts, call)
    # Only what travels as it is, and only ranks that may keep their cores busy.
    if (
        type(plain) is AllReduce
        and call is call_blocking
        and is_one_host(world().hosts)
        and read_switch(_SWITCH, default=True)
    ):
        return SharedMemoryAllReduce(comm)
    return plain
