"""Functions that change each batch of an `hpcrun.train.dataset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from hpcrun.train.data.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Data


def map_batches(batches: tf.data.Dataset, function: Callable[..., Data]) -> tf.data.Dataset:
    """Apply a function to each batch of a dataset, as `tf.data.Dataset.map` does.

    Args:
        batches: An `hpcrun.train.dataset`, or batches of `hpcrun.train.images`; both contain this rank's samples only.
        function: Function of x, y and sample weights of a batch (only those that the batch contains) that returns new
            values for the same number of samples. `tf.data` traces the function.
    """

    def change_shard(shard: Shard) -> Shard:
        return Shard(function(*shard.data) if isinstance(shard.data, tuple) else function(shard.data), shard.share)

    changed = batches.map(tf.autograph.experimental.do_not_convert(change_shard))
    changed.replica = getattr(batches, "replica", None)
    return changed
