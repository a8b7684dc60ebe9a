"""Functions of the batches of an `hpcrun.train.dataset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from hpcrun.train.data.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Data


def map_batches(batches: tf.data.Dataset, function: Callable[..., Data]) -> tf.data.Dataset:
    """Return a dataset of which a function has changed each batch, as `tf.data.Dataset.map` does.

    Args:
        batches: An `hpcrun.train.dataset`, or batches of `hpcrun.train.images`, which hold this rank's samples.
        function: Gets x, y and sample weights of a batch, as far as there are any, and returns the new ones, of as many
            samples. `tf.data` traces it.
    """

    def change(shard: Shard) -> Shard:
        return Shard(function(*shard.data) if isinstance(shard.data, tuple) else function(shard.data), shard.share)

    return batches.map(tf.autograph.experimental.do_not_convert(change))
