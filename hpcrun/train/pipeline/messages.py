"""Messages of tensors between neighbouring stages.

The first message for a signature (the shapes of a micro-batch's data) is preceded by a header with the shapes of its
tensors. Later messages are plain bytes, whose receives are posted before they are needed. A thread lets MPI continue
with sends while this rank computes.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.run.waiting import waiting
from hpcrun.train.pipeline.message_memory import DeviceMemory, HostMemory
from hpcrun.train.ranks.cuda_support import is_cuda_aware
from hpcrun.train.ranks.polling import poll

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import tensorflow as tf

    from hpcrun.train.pipeline.layout import Layout
    from hpcrun.train.pipeline.message_memory import MessageMemory, Spec
    from hpcrun.train.types import Data

FORWARD, BACKWARD = 0, 1
_BYTE = "B"  # MPI.BYTE
_MAX_PAUSE = 5e-4  # between two looks for a message, in seconds
WAIT = "a message of a pipeline stage:"
"""Description of waits, equal on all ranks, because stages rightly wait for different messages at the same time."""


class Messages:
    """Messages of this rank to and from its neighbours.

    Args:
        layout: This rank's place.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout, self._comm = layout, layout.pipeline
        self._specs: dict[tuple[int, bool, Hashable], Spec] = {}
        self._posted: dict[tuple[int, int], tuple[list[Any], Sequence[Any]]] = {}
        self._memory: MessageMemory = DeviceMemory() if is_cuda_aware() else HostMemory()
        self._sends = _Sends()

    def send(self, direction: int, number: int, signature: Hashable, tensors: Sequence[tf.Tensor]) -> None:
        """Send tensors of a micro-batch to the next stage (FORWARD) or to the previous stage (BACKWARD).

        Args:
            direction: FORWARD or BACKWARD.
            number: Number of the micro-batch.
            signature: The signature of the micro-batch.
            tensors: The tensors, which may not be changed before `finish`.

        Raises:
            HpcrunError: The shapes differ from those of the first message with this signature.
        """
        target = self._layout.stage + (1 if direction == FORWARD else -1)
        spec = [(tuple(tensor.shape), tensor.dtype.name) for tensor in tensors]
        known = self._specs.get((direction, True, signature))
        if known is None:
            self._specs[direction, True, signature] = spec
            self._sends.add(self._comm.isend(spec, target, _header_tag(direction)), None)
        elif known != spec:
            raise HpcrunError(
                f"stage {self._layout.stage} computed tensors of other shapes than before for equal inputs: {spec}",
                hint="layers may not choose shapes by the values of tensors, such as boolean masks",
            )
        for buffer in self._memory.pack(tensors, spec):
            self._sends.add(self._comm.Isend([buffer, _BYTE], target, _tag(direction, number)), buffer)

    def post(self, direction: int, number: int, signature: Hashable) -> None:
        """Post the receive of a message, if its shapes are known already."""
        spec = self._specs.get((direction, False, signature))
        if spec is not None and (direction, number) not in self._posted:
            source, tag, buffers = self._source(direction), _tag(direction, number), self._memory.allocate(spec)
            requests = [self._comm.Irecv([buffer, _BYTE], source, tag) for buffer in buffers]
            self._posted[direction, number] = requests, buffers

    def receive(self, direction: int, number: int, signature: Hashable) -> Sequence[Data]:
        """Return the tensors of a micro-batch from the previous stage (FORWARD) or from the next stage (BACKWARD)."""
        source = self._source(direction)
        kind = "activations" if direction == FORWARD else "gradients"
        rank = self._layout.rank_of(source)
        with waiting(WAIT, f"{kind} of micro-batch {number} from stage {source} (rank {rank})"):
            if (direction, False, signature) not in self._specs:
                poll(lambda: self._comm.Iprobe(source, _header_tag(direction)), _MAX_PAUSE)
                self._specs[direction, False, signature] = self._comm.recv(source=source, tag=_header_tag(direction))
            self.post(direction, number, signature)
            requests, buffers = self._posted.pop((direction, number))
            for request in requests:
                poll(request.Test, _MAX_PAUSE)
        return self._memory.unpack(buffers, self._specs[direction, False, signature])

    def finish(self) -> None:
        """Wait until all messages have been sent."""
        with waiting(WAIT, f"a neighbour of stage {self._layout.stage} that has not received its messages"):
            poll(self._sends.are_complete, _MAX_PAUSE)

    def _source(self, direction: int) -> int:
        return self._layout.stage + (-1 if direction == FORWARD else 1)


class _Sends:
    """Sends that have not been completed, and a thread that makes MPI continue with them."""

    def __init__(self) -> None:
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._pending: list[tuple[Any, Any]] = []
        if _is_thread_safe():
            threading.Thread(target=self._make_progress, name="hpcrun pipeline sends", daemon=True).start()

    def add(self, request: Any, buffer: Any) -> None:
        """Keep the buffer of a request until it is complete."""
        if request.Test():  # as small messages mostly are; waking the thread would cost more than sending them
            return
        with self._lock:
            self._pending.append((request, buffer))
        self._wake.set()

    def are_complete(self) -> bool:
        """Test the requests, and return whether all are complete."""
        with self._lock:
            self._pending = [(request, buffer) for request, buffer in self._pending if not request.Test()]
            return not self._pending

    def _make_progress(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            pause = _MAX_PAUSE / 4
            while not self.are_complete():
                time.sleep(pause)
                pause = min(pause * 1.2, 4 * _MAX_PAUSE)


def _is_thread_safe() -> bool:
    from mpi4py import MPI

    return bool(MPI.Query_thread() == MPI.THREAD_MULTIPLE)


def _tag(direction: int, number: int) -> int:
    return 2 + 2 * number + direction


def _header_tag(direction: int) -> int:
    return direction
