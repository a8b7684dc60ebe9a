"""Buffers in which gradients are packed, sent and summed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Array = np.ndarray[Any, Any]
    Segment = tuple[int, slice | None, Array]
    Memory = Callable[[int, int, np.dtype[Any]], tuple[Array, list[Array], list[list[Array]]]]

ALIGNMENT = 64  # bytes; TensorFlow adopts an array without a copy only with this alignment


@dataclass(frozen=True, eq=False)
class Chunk:
    """The part of a buffer that one message sends.

    Attributes:
        packed: The memory in which this rank packs its values.
        sums: The memory of the sums over the ranks; may be the same memory as `packed`.
        rank_buffers: The packed values of each rank; empty unless all ranks can read them.
        segments: For each gradient in the chunk: its number, a slice of its values (None: all), and their memory.
        must_complete: Whether the sums must be complete after `reduce`: true for the first chunk, which has the header,
            and for the last chunk.
        identity: A number that follows from the shapes of the gradients in the chunk.
    """

    packed: Array
    sums: Array
    rank_buffers: list[Array]
    segments: list[Segment]
    must_complete: bool
    identity: int = 0


class Buffer:
    """Memory for gradients: a header of a few numbers, then an aligned segment for every gradient.

    Args:
        gradients: Gradients of equal dtype, which give the shapes.
        chunk_bytes: Size of a message in bytes; 0: one message per tensor.
        memory: The function that allocates the memory, such as `AllReduce.memory`.
        with_header: Whether the buffer begins with a header.
        exact: Whether values are sent unrounded; if not, the header is sent as a separate message.

    Attributes:
        views: The sum of each gradient, as a view of the memory.
        chunks: The messages in the order of sending; the first message begins with the header.
    """

    def __init__(
        self, gradients: Sequence[Array], chunk_bytes: int, memory: Memory, *, with_header: bool, exact: bool = True
    ) -> None:
        dtype = gradients[0].dtype
        unit_size = ALIGNMENT // dtype.itemsize  # number of values between two aligned addresses
        header = unit_size if with_header else 0
        starts = [int(s) for s in header + np.cumsum([0, *(-(-g.size // unit_size) * unit_size for g in gradients)])]
        values_per_chunk, size = chunk_bytes // dtype.itemsize, starts[-1]
        segment_ends = [*range(values_per_chunk, size, values_per_chunk), size] if values_per_chunk else starts[1:]
        bounds = [
            (start, stop) for start, stop in pairwise([0, *([] if exact else [header]), *segment_ends]) if start < stop
        ]
        sums, slots, rank_buffers = memory(size, max((stop - start for start, stop in bounds), default=0), dtype)
        self.views = [sums[s : s + g.size].reshape(g.shape) for s, g in zip(starts[:-1], gradients, strict=True)]
        self.chunks = []
        for number, (start, stop) in enumerate(bounds):
            slot = number % len(slots) if slots else 0
            packed_values = slots[slot][: stop - start] if slots else sums[start:stop]
            segments = list(_segments(gradients, starts, start, packed_values))
            views_of_ranks = [slots_of_rank[slot][: stop - start] for slots_of_rank in rank_buffers]
            must_complete = number in {0, len(bounds) - 1}
            identity = crc32(repr([(gradients[i].shape, values) for i, values, _ in segments]).encode())
            self.chunks.append(
                Chunk(packed_values, sums[start:stop], views_of_ranks, segments, must_complete, identity)
            )


def select_values(gradient: Array, values: slice | None) -> Array:
    """Return the part of a gradient that a segment of a chunk has."""
    return gradient if values is None else gradient.reshape(-1)[values]


def _segments(gradients: Sequence[Array], starts: Sequence[int], start: int, packed_values: Array) -> Iterator[Segment]:
    stop = start + packed_values.size
    for i in range(max(bisect_right(starts, start) - 1, 0), bisect_left(starts, stop)):
        low, high = max(start, starts[i]), min(stop, starts[i] + gradients[i].size)
        memory = packed_values[low - start : max(low, high) - start]
        if memory.size == gradients[i].size:
            yield i, None, memory.reshape(gradients[i].shape)
        elif memory.size:
            yield i, slice(low - starts[i], high - starts[i]), memory
