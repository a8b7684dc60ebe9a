"""Weighted sum of gradients over the ranks."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.run.job import print_line, read_number
from hpcrun.run.waiting import waiting
from hpcrun.train.data.batch_share import record_share
from hpcrun.train.gradients.allreduce import AllReduce, call_blocking, call_polling
from hpcrun.train.gradients.buffers import ALIGNMENT, Buffer
from hpcrun.train.gradients.codec_choice import CodecChooser
from hpcrun.train.gradients.codecs import AUTO, CODECS, choose_allreduce, is_automatic
from hpcrun.train.gradients.layerwise import LayerwiseAllReduce
from hpcrun.train.gradients.shared_memory import SharedMemoryAllReduce, is_one_host
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import checked_barrier
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import read_switch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.gradients.buffers import Chunk
    from hpcrun.train.gradients.codec_choice import Choice
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

_SHARED_MEMORY_VARIABLE = "HPCRUN_SHARED_MEMORY"


class Reducer:
    """Weighted sum of gradients over all ranks; the weights are the ranks' shares of the batch.

    The gradient of rank r is a mean over its b_r samples. With the weight b_r / B, the sum over the ranks is the mean
    over all B samples. The first message begins with a header of a few numbers, which keeps the ranks synchronized.

    Args:
        comm: The MPI communicator of the participating ranks.
        chunk_bytes: Size of a message in bytes; 0: one message per tensor. Default: ``$HPCRUN_FUSION_THRESHOLD_KB``, or
            the default of `allreduce`.
        allreduce: The allreduce of a message (default: `choose_allreduce`).
        overlap: Whether the backward pass continues during the allreduce. If so, a step's gradients are reduced in
            groups, and the waiting thread does not keep its core busy.
        hosts: The host of each rank of `comm` (default: the hosts of all ranks).

    Attributes:
        on_device: Whether gradients are tensors on their device, not arrays in host memory.
        steps: Number of steps so far.
        stop_requested: Whether this rank wants to stop training; sent to the other ranks with the next reduction.
        stop_agreed: Whether a rank requested a stop in the last reduction; equal on all ranks.
        exit_requested: Whether this rank received a signal to exit; sent to the other ranks with the next reduction.
        exit_agreed: Whether a rank requested an exit in the last reduction; equal on all ranks.
        keepalive: Functions that compiled steps call; kept alive as long as the reducer.
        codec: The name of the codec; ``auto`` until it has been chosen.
        codec_reason: Why ``auto`` has chosen the codec; empty without ``auto``.
        values_to_compare: Values that must be equal on all ranks; compared at the first step.
    """

    on_device = False

    def __init__(
        self,
        comm: Comm,
        chunk_bytes: int | None = None,
        allreduce: AllReduce | None = None,
        *,
        overlap: bool = False,
        hosts: Sequence[str] | None = None,
    ) -> None:
        self.comm = comm
        self._hosts = world().hosts if hosts is None else hosts
        self.overlap = overlap
        call = call_polling if overlap else call_blocking
        self.codec, self.codec_reason = os.environ.get("HPCRUN_COMPRESS") or "none", ""
        self._chooser = None if allreduce else _create_chooser(comm, overlap=overlap)
        self.allreduce = allreduce or _choose_allreduce(comm, self._hosts, call)
        if overlap and getattr(self.allreduce, "is_last_layer_float", False):
            raise HpcrunError(
                "--float-last-layer with HPCRUN_OVERLAP=1: groups of gradients do not know which layer is the last one",
                hint="leave out one of them",
            )
        self._exact_allreduce = AllReduce(comm, call)
        self.chunk_bytes = _chunk_size(self.allreduce.chunk_bytes) if chunk_bytes is None else chunk_bytes
        self.steps = self._uncounted_steps = 0
        self.stop_requested = self.stop_agreed = self.exit_requested = self.exit_agreed = False
        self.keepalive: list[Any] = []
        self.values_to_compare: dict[str, object] = {}
        self._buffers: dict[tuple[Any, ...], Buffer] = {}
        self._header_chunk: Chunk | None = None

    def __call__(
        self,
        gradients: Sequence[Array],
        share: float,
        group: int = 0,
        is_last_group: bool = True,
        paths: tuple[str, ...] = (),
    ) -> list[Array]:
        """Return the weighted sum of gradients over all ranks. Collective; equal shapes and dtype on all ranks.

        Args:
            gradients: This rank's gradients, of one float dtype; not modified, because TensorFlow may own the memory.
            share: This rank's share of the batch, the weight of its gradients.
            group: Number of this group of gradients in the step, from 0.
            is_last_group: Whether this is the last group of the step.
            paths: The paths of the variables: a codec keeps nothing of other variables with these shapes.

        Returns:
            Arrays of the same shapes, as views of a buffer that the next call for the same group overwrites.

        Raises:
            HpcrunError: Other ranks have no more batches, or the ranks' shares do not add up to 1.
        """
        key = (paths, group, gradients[0].dtype, *(g.shape for g in gradients))
        if self._chooser and group == 0 and self._chooser.is_complete():
            self._choose_codec(self._chooser, gradients, len(self._buffers[key].chunks) if key in self._buffers else 1)
        if key not in self._buffers:
            checked_barrier(
                "the first gradients' allreduce", self.comm
            )  # ranks reach the first step at different times
            self._buffers[key] = Buffer(
                gradients, self.chunk_bytes, self.allreduce.memory, with_header=group == 0, exact=self.allreduce.exact
            )
        buffer = self._buffers[key]
        weight = gradients[0].dtype.type(share)
        with self._measured(), waiting("the gradients' allreduce of step", self.steps + 1):
            for chunk in buffer.chunks:
                self.allreduce.pack(chunk, gradients, weight)
                # Send the chunk while it is in the cache.
                if group == 0 and chunk is buffer.chunks[0]:
                    self._header_chunk = chunk
                    self._reduce_header(chunk, share, has_ended=False)
                    self._read_header(chunk, self.steps + 1)
                else:
                    self.allreduce.reduce(chunk)
        self.steps += is_last_group
        return buffer.views

    def end_epoch(self) -> None:
        """Tell the other ranks that this rank has no more batches. Collective, after the last step of an epoch.

        Raises:
            HpcrunError: Some ranks have more batches.
        """
        if self._header_chunk:
            with waiting("the end of the epoch"):
                self._reduce_header(self._header_chunk, 0, has_ended=True)
            self._read_header(self._header_chunk, self.steps)

    def sent_bytes_per_step(self) -> float:
        """Return how many bytes this rank has sent per step in its codec; 0 if unknown, as in shared memory."""
        return self.allreduce.sent_bytes / max(1, self.steps - self._uncounted_steps)

    def use_codec(self, choice: Choice) -> None:
        """Sum the gradients of the next steps in the codec that ``auto`` has chosen. Collective.

        Args:
            choice: The codec, equal on all ranks.
        """
        codec_in_use, self._chooser = "none" if self.codec == AUTO else self.codec, None
        self.codec, self.codec_reason = choice
        if choice.codec != codec_in_use:
            is_plain = choice.codec == "none"
            self.allreduce = (
                _choose_allreduce(self.comm, self._hosts, call_blocking)
                if is_plain
                else CODECS[choice.codec](self.comm)
            )
            self.allreduce.float_first = 0  # the choice came after these steps
            self.chunk_bytes, self._uncounted_steps = _chunk_size(self.allreduce.chunk_bytes), self.steps
            self._buffers, self._header_chunk = {}, None

    def _choose_codec(self, chooser: CodecChooser, gradients: Sequence[Array], chunks: int) -> None:
        """Choose the codec, or at the next call check the choice. Collective."""
        is_first = self.codec == AUTO
        with waiting("the choice of a codec"):
            choice = chooser.choose(gradients, chunks)
        if self.comm.rank == 0 and choice.codec != self.codec:
            print_line(f"INFO: --compress auto chose {choice.codec}: {choice.reason}")
        self.use_codec(choice)
        if is_first and choice.codec != "none":
            self._chooser = chooser

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Measure a sum of gradients, if the codec has not been chosen yet."""
        if self._chooser:
            self._chooser.begin_sum()
        yield
        if self._chooser:
            self._chooser.end_sum()

    def _reduce_header(self, chunk: Chunk, share: float, *, has_ended: bool) -> None:
        if not has_ended:
            record_share(share)
        header = chunk.packed
        header[0], header[1], header[2], header[3] = share, self.stop_requested, self.exit_requested, has_ended
        (self.allreduce if self.allreduce.exact else self._exact_allreduce).reduce(chunk)

    def _read_header(self, chunk: Chunk, steps: int) -> None:
        shares, stop_requests, exit_requests, ended_ranks = chunk.sums[:4].tolist()
        self.stop_agreed, self.exit_agreed = stop_requests > 0, exit_requests > 0
        if 0 < ended_ranks < self.comm.size:
            # All ranks read the same sum, so all ranks reach this call.
            require_agreement(
                {"number of training steps so far": steps}, "give all ranks data sets with the same number of batches"
            )
        if not ended_ranks and abs(shares - 1) > 1e-3:
            raise HpcrunError(
                f"the ranks' shards of a batch add up to {shares:.4g} batches",
                hint="give all ranks the same data and the same global batch size",
            )


def _chunk_size(default: int) -> int:
    if default >= LayerwiseAllReduce.chunk_bytes:
        return default  # a message contains whole layers
    size = (
        read_number("HPCRUN_FUSION_THRESHOLD_KB", default / 1024, "KB", "2048, or 0 for one message per tensor") * 1024
    )
    return max(int(size), ALIGNMENT) if size else 0  # a chunk must hold the whole header


def _create_chooser(comm: Comm, *, overlap: bool) -> CodecChooser | None:
    """Return what measures the first steps and chooses the codec; None without ``auto``."""
    if not is_automatic():
        return None
    if overlap or read_switch("HPCRUN_HIERARCHICAL", default=False):
        variable = "HPCRUN_OVERLAP" if overlap else "HPCRUN_HIERARCHICAL"
        raise HpcrunError(
            f"--compress=auto cannot predict steps with {variable}=1",
            hint=f"leave out {variable}, or name a codec: {', '.join(CODECS)}",
        )
    return CodecChooser(comm)


def _choose_allreduce(comm: Comm, hosts: Sequence[str], call: Call) -> AllReduce:
    default_allreduce = choose_allreduce(comm, hosts, call)
    # Use shared memory only for unrounded values, and only if waiting ranks may keep their cores busy.
    if (
        type(default_allreduce) is AllReduce
        and call is call_blocking
        and is_one_host(hosts)
        and read_switch(_SHARED_MEMORY_VARIABLE, default=True)
    ):
        return SharedMemoryAllReduce(comm)
    return default_allreduce
