"""Allreduce of gradients by layer: base class of the codecs that compress gradients by large factors.

Settings, from environment variables: ``HPCRUN_MIN_SIZE``, the smallest layer that is compressed;
``HPCRUN_FLOAT_LAST_LAYER``; ``HPCRUN_FLOAT_EVERY``, n to send every n-th step unrounded; ``HPCRUN_FLOAT_FIRST``, n to
send the first n steps unrounded; and ``HPCRUN_ERROR_FEEDBACK``.
Options of `hpcrun submit` with these names, such as ``--min-size``, set the variables.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.run.job import read_whole_number
from hpcrun.train.gradients.allreduce import AllReduce, call_blocking
from hpcrun.train.settings import read_switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.gradients.buffers import Chunk
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

DEFAULT_MIN_SIZE = 2048


def read_float_first() -> int:
    """Return how many steps are sent unrounded at the beginning of a training (``$HPCRUN_FLOAT_FIRST``; 0).

    Raises:
        HpcrunError: The variable is not a whole number.
    """
    return read_whole_number("HPCRUN_FLOAT_FIRST", 0, "steps", "1000, or 0 for none")


class Layout:
    """The layers of a chunk.

    Args:
        identity: The identity of the chunk, which no other chunk has.
        layers: All layers, as views of the chunk, each in the shape of its gradient.
        is_compressed: Whether each layer is compressed.
        error_feedback: Whether a rank adds what it has not sent to the next step.

    Attributes:
        steps: Number of reductions of the chunk, including those before a restored checkpoint.
        compressed: The layers to compress.
        floats: The remaining layers, flattened.
        residuals: For each compressed layer, the part that this rank has not sent yet; empty without error feedback.
    """

    def __init__(
        self, identity: int, layers: Sequence[Array], is_compressed: Sequence[bool], *, error_feedback: bool
    ) -> None:
        self.identity, self.is_compressed, self.steps = identity, is_compressed, 0
        pairs = list(zip(layers, is_compressed, strict=True))
        self.compressed = [layer for layer, compressed in pairs if compressed]
        self.floats = [layer.reshape(-1) for layer, compressed in pairs if not compressed]
        self.residuals = [np.zeros_like(layer) for layer in self.compressed] if error_feedback else []


class LayerwiseAllReduce(AllReduce):
    """Allreduce that compresses large layers, and sends small layers unrounded.

    Layers of dtypes other than float32 are sent unrounded.

    Args:
        comm: The MPI communicator of the participating ranks.
        call: `call_blocking` or `call_polling`, which calls a collective and waits for its end.
    """

    exact = False
    chunk_bytes = 2**50  # a message contains whole layers
    has_error_feedback = False

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        super().__init__(comm, call)
        self.min_size = read_whole_number("HPCRUN_MIN_SIZE", DEFAULT_MIN_SIZE, "numbers", "2048")
        self.float_every = read_whole_number("HPCRUN_FLOAT_EVERY", 0, "steps", "100, or 0 for never")
        self.float_first = read_float_first()
        self.is_last_layer_float = read_switch("HPCRUN_FLOAT_LAST_LAYER", default=False)
        self.error_feedback = read_switch("HPCRUN_ERROR_FEEDBACK", default=self.has_error_feedback)
        self._layouts: dict[Chunk, Layout] = {}
        self._restored: dict[int, Sequence[Array]] = {}  # by the identity of the layout

    def reduce(self, chunk: Chunk) -> None:
        """Sum the packed values of all ranks into `chunk.sums`.

        Args:
            chunk: A chunk of a buffer that `memory` allocated; the same object for the same gradients in each step.
        """
        layout = self.find_layout(chunk)
        if layout is None:
            super().reduce(chunk)
            return
        layout.steps += 1
        for layer, residual in zip(layout.compressed, layout.residuals, strict=False):
            np.add(layer, residual, out=layer)
        if self.sends_floats(layout.steps):
            self._sum_together([*layout.compressed, *layout.floats])
            if layout.residuals and all(np.isfinite(array).all() for array in (*layout.compressed, *layout.floats)):
                for residual in layout.residuals:
                    residual.fill(0)
        else:
            self.sum_layers(layout)

    def sum_layers(self, layout: Layout) -> None:
        """Replace all layers by their sums over the ranks, and update the residuals. Collective."""
        raise NotImplementedError

    def find_layout(self, chunk: Chunk) -> Layout | None:
        """Return the layers of a chunk; None if none is compressed, because of the dtype or a single rank."""
        if chunk.sums.dtype != np.float32 or self.comm.size == 1:
            return None
        if chunk not in self._layouts:
            self._layouts[chunk] = self._lay_out(chunk)
        return self._layouts[chunk]

    def sends_floats(self, step: int) -> bool:
        """Return whether all layers are sent unrounded in a step, counted from 1."""
        return step <= self.float_first or (self.float_every > 0 and step % self.float_every == 0)

    def is_compressible(self, layer: Array) -> bool:
        """Return whether a layer is worth compressing."""
        return layer.size >= self.min_size

    def _sum_together(self, arrays: Sequence[Array]) -> None:
        """Replace arrays by their sums over the ranks, with one message."""
        if not arrays:
            return
        joined = np.concatenate([array.reshape(-1) for array in arrays])
        self.sum(joined)
        start = 0
        for array in arrays:
            array[...] = joined[start : start + array.size].reshape(array.shape)
            start += array.size

    def _lay_out(self, chunk: Chunk) -> Layout:
        layers = [memory for _, _, memory in chunk.segments] or [chunk.sums]
        matrices = [index for index, layer in enumerate(layers) if layer.ndim > 1]
        last = matrices[-1] if self.is_last_layer_float and matrices else len(layers)
        is_compressed = [self.is_compressible(layer) and index < last for index, layer in enumerate(layers)]
        identity, others = chunk.identity, {layout.identity for layout in self._layouts.values()}
        while identity in others:  # other variables of equal shapes
            identity += 1
        layout = Layout(identity, layers, is_compressed, error_feedback=self.error_feedback)
        if identity in self._restored:
            self.restore_layout(layout, self._restored[identity])
        return layout

    def get_layout_state(self, layout: Layout) -> list[Array]:
        """Return the state of a chunk: its number of steps, and its residuals."""
        return [np.array([layout.steps, len(layout.residuals)]), *layout.residuals]

    def restore_layout(self, layout: Layout, arrays: Sequence[Array]) -> None:
        """Restore the state of a chunk; skip residuals of different layers (if --min-size changed)."""
        layout.steps, count = map(int, arrays[0])
        residuals = arrays[1 : 1 + count]
        if [residual.shape for residual in residuals] == [residual.shape for residual in layout.residuals]:
            layout.residuals = [np.array(residual) for residual in residuals]

    def state(self) -> list[Array]:
        """Return the state that this rank keeps between steps.

        Its first array has a row for each chunk: the identity, and the number of arrays. Then the arrays follow.
        """
        states = {layout.identity: self.get_layout_state(layout) for layout in self._layouts.values()}
        table = np.array([(identity, len(arrays)) for identity, arrays in states.items()]).reshape(-1, 2)
        return [table, *(array for arrays in states.values() for array in arrays)]

    def restore(self, states: Sequence[Sequence[Array]]) -> None:
        """Restore the state from a checkpoint; for a new number of ranks, divide the residuals equally.

        Args:
            states: The `state` of each rank that wrote the checkpoint, in rank order.
        """
        chunks = [_split(state) for state in states if state]
        if not chunks:
            return
        own_chunks = chunks[self.comm.rank % len(chunks)]
        if len(chunks) != self.comm.size:
            same_chunks = zip(*(of_rank.values() for of_rank in chunks), strict=True)
            merged_chunks = [self.merge(list(same), self.comm.size) for same in same_chunks]
            own_chunks = dict(zip(own_chunks, merged_chunks, strict=True))
        self._restored = own_chunks
        for layout in self._layouts.values():  # of steps before this `fit`
            if layout.identity in own_chunks:
                self.restore_layout(layout, own_chunks[layout.identity])

    def merge(self, states: list[Sequence[Array]], size: int) -> Sequence[Array]:
        """Return the state of a chunk for a new number of ranks, given the states of all ranks of the checkpoint."""
        count = int(states[0][0][1])
        sums = [np.sum([arrays[1 + index] for arrays in states], axis=0) for index in range(count)]
        return [states[0][0], *(total / np.float32(size) for total in sums), *states[0][1 + count :]]


def _split(state: Sequence[Array]) -> dict[int, Sequence[Array]]:
    """Return the arrays of each chunk by its identity, given a `state`."""
    identities, counts = state[0].T.tolist()
    ends = np.cumsum([1, *counts]).tolist()
    return {identity: state[start:stop] for identity, (start, stop) in zip(identities, pairwise(ends), strict=True)}
