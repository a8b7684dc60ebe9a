"""Weighted sum of gradients over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.data.batch_share import record_share
from hpcrun.train.gradients.allreduce import AllReduce, call_blocking, call_polling
from hpcrun.train.gradients.buffers import ALIGNMENT, Buffer
from hpcrun.train.gradients.shared_memory import SharedMemoryAllReduce, is_one_host
from hpcrun.train.gradients.wire_formats import choose_allreduce
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import checked_barrier
from hpcrun.train.ranks.waiting import waiting
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import read_number, read_switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.gradients.buffers import Piece
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

_SWITCH = "HPCRUN_SHARED_MEMORY"


class Reducer:
    """Sums gradients over all ranks, each rank's weighted by its share of the batch.

    Rank r's gradient is a mean over its b_r samples; with the weight b_r / B the sum over the ranks is the mean over
    all B samples. A header of a few numbers, by which the ranks stay synchronized, is sent in front of the gradients,
    without a message of its own.

    Args:
        comm: The MPI communicator of the participating ranks.
        piece: The bytes of one message; 0 for one message per tensor (default: ``$HPCRUN_FUSION_THRESHOLD_KB``, or a
            size that suits `allreduce`).
        allreduce: The allreduce of a message (default: `choose_allreduce`).
        overlap: Whether the backward pass continues meanwhile: then a step's gradients come in groups, and waiting does
            not use the core.

    Attributes:
        on_device: Whether it takes tensors, not arrays in host memory.
        steps: The number of reductions so far.
        stop_requested: Set it to tell the other ranks, with the next reduction, that this rank wants to stop training.
        stop_agreed: Whether a rank requested to stop at the last reduction; it changes on all ranks at the same step.
        exit_requested: Likewise, that this rank received a signal to exit.
        exit_agreed: Whether a rank requested to exit.
        keepalive: Functions of compiled steps that use this reducer; they live as long as it does.
        compared: Values that must be equal on all ranks, to be compared at the first step.
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
        self.compared: dict[str, object] = {}
        self._buffers: dict[tuple[Any, ...], Buffer] = {}
        self._last: Piece | None = None

    def __call__(self, gradients: Sequence[Array], share: float, group: int = 0, last: bool = True) -> list[Array]:
        """Return the weighted sum over all ranks; every rank must call this, with the same shapes and dtype.

        Args:
            gradients: This rank's gradients, of one float dtype. They are not modified: they may be TensorFlow's
                memory.
            share: This rank's weight.
            group: The number of this group of gradients in the step, from 0 on.
            last: Whether this is the step's last group.

        Returns:
            Arrays of the same shapes: views of a buffer that the next call for the same group overwrites.

        Raises:
            HpcrunError: Other ranks have no more batches, or the shares do not add up to 1.
        """
        key = (group, gradients[0].dtype, *(g.shape for g in gradients))
        if key not in self._buffers:
            checked_barrier("the first gradients' allreduce")  # ranks arrive far apart at the first step
            self._buffers[key] = Buffer(
                gradients, self.piece, self.allreduce.memory, with_header=group == 0, exact=self.allreduce.exact
            )
        buffer = self._buffers[key]
        weight = gradients[0].dtype.type(share)
        with waiting("the gradients' allreduce of step", self.steps + 1):
            for piece in buffer.pieces:
                for number, values, place in piece.segments:
                    gradient = gradients[number]
                    np.multiply(gradient if values is None else gradient.reshape(-1)[values], weight, out=place)
                # Send it while it is in the cache.
                if group == 0 and piece is buffer.pieces[0]:
                    self._last = piece
                    self._reduce_header(piece, share, ended=False)
                    self._read_header(piece, self.steps + 1)
                else:
                    self.allreduce.reduce(piece)
        self.steps += last
        return buffer.views

    def end_epoch(self) -> None:
        """Tell the other ranks that this one has no more batches; every rank must call this after its last step.

        Raises:
            HpcrunError: Some ranks have more batches.
        """
        if self._last:
            with waiting("the end of the epoch"):
                self._reduce_header(self._last, 0, ended=True)
            self._read_header(self._last, self.steps)

    def _reduce_header(self, piece: Piece, share: float, *, ended: bool) -> None:
        if not ended:
            record_share(share)
        header = piece.packed
        header[0], header[1], header[2], header[3] = share, self.stop_requested, self.exit_requested, ended
        (self.allreduce if self.allreduce.exact else self._exact_allreduce).reduce(piece)

    def _read_header(self, piece: Piece, steps: int) -> None:
        shares, stop, halt, ended = piece.sums[:4].tolist()
        self.stop_agreed, self.exit_agreed = stop > 0, halt > 0
        if 0 < ended < self.comm.size:
            # All ranks get here, because all of them read the same sum.
            require_agreement(
                {"number of training steps so far": steps}, "give all ranks data sets with the same number of batches"
            )
        if not ended and abs(shares - 1) > 1e-3:
            raise HpcrunError(
                f"the ranks' shards of a batch add up to {shares:.4g} batches",
                hint="give all ranks the same data and the same global batch size",
            )


def _piece_size(default: int) -> int:
    size = (
        read_number("HPCRUN_FUSION_THRESHOLD_KB", default / 1024, "KB", "2048, or 0 for one message per tensor") * 1024
    )
    return max(int(size), ALIGNMENT) if size else 0  # the header must fit into one piece


def _choose_allreduce(comm: Comm, call: Call) -> AllReduce:
    plain = choose_allreduce(comm, world().hosts, call)
    # Only for unrounded values, and if ranks may keep their cores busy.
    if (
        type(plain) is AllReduce
        and call is call_blocking
        and is_one_host(world().hosts)
        and read_switch(_SWITCH, default=True)
    ):
        return SharedMemoryAllReduce(comm)
    return plain
