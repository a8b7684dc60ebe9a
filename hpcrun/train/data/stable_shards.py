"""A sample order that gives each rank nearly the same samples in every epoch, so that it can cache them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def owner(sample: Any, ranks: int) -> Any:
    """Return the rank that caches a sample, given the sample's number; arrays are converted element by element."""
    return sample % ranks


def arrange_samples(sample_order: Array, batch_size: int, ranks: int) -> Array:
    """Reorder the samples within each batch so that as many as possible go to the rank that caches them.

    The size of a rank's shard of a batch is fixed (`shards.shard_indices`): if a rank caches more samples of a batch,
    the excess samples go to ranks that cache fewer.

    Args:
        sample_order: The numbers of an epoch's samples in their order, int64 of shape (samples,).
        batch_size: The global batch size.
        ranks: The number of ranks.
    """
    return np.concatenate(
        [
            _arrange_batch(sample_order[start : start + batch_size], ranks)
            for start in range(0, len(sample_order), batch_size)
        ]
    )


def _arrange_batch(batch: Array, ranks: int) -> Array:
    positions = np.arange(len(batch))
    owners = owner(batch, ranks)
    positions_by_owner = np.argsort(owners, kind="stable")
    index_of_owner = positions - np.searchsorted(
        owners[positions_by_owner], owners[positions_by_owner]
    )  # index of each sample among the samples of its owner
    # rank r gets the positions r, r + ranks, ...
    wanted_positions = owners[positions_by_owner] + index_of_owner * ranks
    is_in_batch = wanted_positions < len(batch)
    arranged_batch = np.empty_like(batch)
    arranged_batch[wanted_positions[is_in_batch]] = batch[positions_by_owner[is_in_batch]]
    arranged_batch[np.setdiff1d(positions, wanted_positions[is_in_batch])] = batch[positions_by_owner[~is_in_batch]]
    return arranged_batch
