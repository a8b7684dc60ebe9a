"""Sharding of batches: the division of a batch's samples among the ranks, or with pipeline stages, the replicas.

Rank r of p takes samples r, r + p, r + 2p and so on of a batch of B samples: B // p samples, or one more on the first B
% p ranks (Tarantella's rule). The gradient of rank r, which has b_r samples, has the weight b_r / B. A rank without a
sample (in a last batch of fewer samples than ranks) computes on a placeholder sample with weight 0, because many layers
turn an empty batch into NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from hpcrun.train.ranks.replicas import replica

if TYPE_CHECKING:
    from hpcrun.train.types import Data


class Shard(NamedTuple):
    """This rank's shard of one batch, as input of a training or test step.

    Args:
        data: x, (x, y) or (x, y, sample_weight), as Keras expects; first axis b_r, this rank's number of samples (1 if
            b_r is 0). The data of a custom step may have any structure, and contain scalars, which all ranks get.
        share: b_r / B, this rank's share of the batch, a float32 scalar.
    """

    data: Data
    share: Data


class PredictShard(NamedTuple):
    """This rank's shard of one batch to predict.

    Args:
        data: x; first axis b_r, this rank's number of samples (1 if b_r is 0).
        positions: The index of each sample among the samples of all batches, int64 of shape (b_r,); -1 if b_r is 0.
    """

    data: Data
    positions: Data


def first_rank_with_samples(batch: Data) -> Data:
    """Return the first tensor of a batch with an axis of samples, that is, the first that is not a scalar."""
    return next(leaf for leaf in keras.tree.flatten(batch) if not is_scalar(leaf))


def is_scalar(leaf: Data) -> bool:
    """Return whether a tensor or tensor spec has no axis; if the number of axes is unknown, return False."""
    return bool(leaf.shape == ())


def shard_indices(samples: int, *, distribute: bool = True) -> tuple[np.ndarray[Any, Any], np.float32]:
    """Return the indices of this rank's samples of a batch, and its share of the batch.

    Args:
        samples: Number of samples in the batch (B).
        distribute: Whether to shard the batch among the ranks; if not, each rank takes all samples of its own batch;
            ranks have equal weights.

    Returns:
        The indices, int64 of shape (b_r,), or (1,) if the rank has no sample; and the rank's share of the batch.
    """
    own = replica()
    if not distribute:
        return np.arange(samples), np.float32(1 / own.size)
    indices = np.arange(min(own.rank, samples - 1), samples, own.size)
    return indices, np.float32(len(indices) / samples if own.rank < samples else 0)
