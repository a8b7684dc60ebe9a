"""Sharding of batches: which samples of a batch each rank gets.

Rank r of p takes samples r, r + p, r + 2p, ... of a batch of B samples: B // p of them, the first B % p ranks one more
(Tarantella's rule). A rank's gradient has the weight b_r / B. In a last batch with fewer samples than ranks, some ranks
get none; they compute on a placeholder sample with weight 0, because many layers turn an empty batch into NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Data


class Shard(NamedTuple):
    """This rank's shard of one batch, as input of a training or test step.

    Args:
        data: x, (x, y) or (x, y, sample_weight), as Keras expects it; first axis b_r (1 if b_r is 0). That of a custom
            step may have another structure, and contain scalars, which all ranks get.
        share: b_r / B, a float32 scalar.
    """

    data: Data
    share: Data


class PredictShard(NamedTuple):
    """This rank's shard of one batch to predict.

    Args:
        data: x, first axis b_r (1 if b_r is 0).
        place: The index of each sample among the samples of all batches, int64 of shape (b_r,); -1 if b_r is 0.
    """

    data: Data
    place: Data


def first_with_samples(batch: Data) -> Data:
    """Return the first tensor of a batch that is not a scalar: its first axis is that of the samples."""
    return next(leaf for leaf in keras.tree.flatten(batch) if not is_scalar(leaf))


def is_scalar(leaf: Data) -> bool:
    """Return whether a tensor, or its spec, has no axis; one of unknown rank has."""
    return bool(leaf.shape == ())


def shard_indices(total: int, *, distribute: bool = True) -> tuple[np.ndarray[Any, Any], np.float32]:
    """Return the samples of a batch that this rank gets.

    Args:
        total: B, the number of samples in the batch.
        distribute: Whether the ranks share the batch; otherwise each takes all samples of its own batch, with equal
            weights.

    Returns:
        The indices, int64 of shape (b_r,), one if b_r is 0; and the rank's share of the batch.
    """
    me = world()
    if not distribute:
        return np.arange(total), np.float32(1 / me.size)
    indices = np.arange(min(me.rank, total - 1), total, me.size)
    return indices, np.float32(len(indices) / total if me.rank < total else 0)
