"""Overlap of the allreduce with the backward pass (TensorFlow only).

TensorFlow continues the backward pass in another thread while one waits in MPI for a group of gradients. The
communication time of a ResNet-50 step between two hosts (one thread per rank for each operation, two operations at a
time) fell by a quarter to a third at 1 Gbit/s, where waiting is long, and by no more than the noise at 10 Gbit/s and
without a limit. Within one host there was no gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BUCKET_BYTES = 25 * 2**20  # bytes; as in "PyTorch Distributed" (Li et al., VLDB 13, 2020)


def group_gradients(sizes: Sequence[int], bucket: float) -> list[list[int]]:
    """Group gradients in the order of the backward pass, which is the reverse of the variables' order.

    Args:
        sizes: The sizes of the gradients in bytes.
        bucket: The bytes that complete a group.

    Returns:
        The indices of each group.
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
