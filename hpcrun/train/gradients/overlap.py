"""Reducing the first gradients of a step while its backward pass goes on (TensorFlow only).

TensorFlow goes on with the backward pass in another thread while one waits in MPI for a group of gradients. What
communication adds to a step of ResNet-50 between two hosts (a thread a rank for each operation, two operations at a
time) fell by a quarter to a third at 1 Gbit/s, where waiting is long, and by no more than the noise at 10 Gbit/s and
without a limit. Within one host nobody waits, and nothing was gained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKET_BYTES = 25 * 2**20  # bytes; as in "PyTorch Distributed" (Li et al., VLDB 13, 2020)


def group_gradients(sizes: Sequence[int], bucket: float) -> list[list[int]]:
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
