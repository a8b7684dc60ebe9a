"""What a rank gets of a batch: every batch is dealt to the ranks like cards.

Rank r of p takes samples r, r + p, r + 2p, ... of a batch of B samples: B // p of them, the first B % p ranks one more
(Tarantella's rule). A rank's gradient then counts b_r / B. In a last batch of fewer samples than ranks some ranks get
none; they compute on a sample that counts 0, because an empty batch is NaN to many layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Data


class Shard(NamedTuple):
    """This rank's part of one batch, as it travels to the training or test step.

    Args:
        data: What Keras expects: x, (x, y) or (x, y, sample_weight), first axis b_r (1 where b_r is 0).
        share: b_r / B, a float32 scalar.
    """

    data: Data
    share: Data


class PredictShard(NamedTuple):
    """This rank's part of one batch to predict.

    Args:
        data: x, first axis b_r (1 where b_r is 0).
        place: Each sample's place among all samples of all batches, int64 of shape (b_r,); -1 where b_r is 0.
    """

    data: Data
    place: Data


def shard_indices(total: int, *, distribute: bool = True) -> tuple[np.ndarray[Any, Any], np.float32]:
    """Return which samples of a batch this rank gets.

    Args:
        total: B, the samples of the batch.
        distribute: Whether ranks take parts; otherwise each gets all samples of a batch of its own, and all count alike.

    Returns:
        Their indices, int64 of shape (b_r,), one where b_r is 0; and the rank's share of the batch.
    """
    me = world()
    if not distribute:
        return np.arange(total), np.float32(1 / me.size)
    indices = np.arange(min(me.rank, total - 1), total, me.size)
    return indices, np.float32(len(indices) / total if me.rank < total else 0)
