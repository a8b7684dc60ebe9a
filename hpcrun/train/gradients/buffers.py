"""The memory in which gradients are packed, sent and summed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]
    Memory = Callable[[int, np.dtype[Any]], tuple[Array, Array, list[Array]]]

ALIGNMENT = 64  # bytes; TensorFlow takes an array over without a copy only when it is aligned so


class Buffer:
    """Memory for gradients: a head of a few numbers, then an aligned stretch for every gradient.

    Args:
        gradients: What it is for.
        piece: Bytes of one message.
        memory: What gives the memory, as `Dense.memory` does.
        headed: Whether the head is sent.
        exact: Whether numbers travel as they are; else the head is a message of its own.

    Attributes:
        flat: Where they are packed.
        packed: A view of it for every gradient.
        sums: Where the sums over the ranks are.
        views: A view of it for every gradient.
        parts: Where every rank packs, if others see it.
        ends: Where each gradient ends, with what pads it.
        cuts: Where each message ends.
    """

    def __init__(
        self, gradients: Sequence[Array], piece: int, memory: Memory, *, headed: bool, exact: bool = True
    ) -> None:
        dtype = gradients[0].dtype
        lanes = ALIGNMENT // dtype.itemsize
        starts = lanes + np.cumsum([0, *(-(-g.size // lanes) * lanes for g in gradients)])
        size = int(starts[-1])
        self.flat, self.sums, self.parts = memory(size, dtype)
        self.start = 0 if headed else lanes
        self.ends = [int(end) for end in starts[1:]]
        self.packed, self.views = (
            [flat[start : start + g.size].reshape(g.shape) for start, g in zip(starts[:-1], gradients, strict=True)]
            for flat in (self.flat, self.sums)
        )
        step = piece // dtype.itemsize
        self.cuts = [*range(step, size, step), size] if step else self.ends
        if headed and not exact and self.cuts[0] > lanes:
            self.cuts = [lanes, *self.cuts]
