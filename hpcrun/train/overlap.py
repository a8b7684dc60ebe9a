"""Reducing the first gradients of a step while its backward pass goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.train.wires import switch

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKET = 25 * 2**20  # bytes; as in "PyTorch Distributed" (Li et al., VLDB 13, 2020)


def overlapping() -> bool:
    """Return whether to reduce gradients in groups, as ``$HPCRUN_OVERLAP`` says."""
    return keras.backend.backend() == "tensorflow" and switch("HPCRUN_OVERLAP", default=False)


def grouped(sizes: Sequence[int], bucket: float) -> list[list[int]]:
    """Return groups of gradients in the order in which a backward pass makes them, which is the variables' reversed.

    Args:
        sizes: Of the gradients, in bytes.
        bucket: Bytes after which a group is complete.

    Returns:
        Each group's indices.
    """
    groups: list[list[int]] = []
    filled = bucket
    for i in reversed(range(len(sizes))):
        if filled >= bucket:
            groups.append([])
            filled = 0
        groups[-1].append(i)
        filled += sizes[i]
    return groups
