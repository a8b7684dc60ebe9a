"""An order of samples in which each rank gets nearly the same ones every epoch, and can keep them in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def owner(sample: Any, ranks: int) -> Any:
    """Return the rank that keeps a sample, by its number; of an array of numbers, an array of ranks."""
    return sample % ranks


def arrange(order: Array, batch_size: int, ranks: int) -> Array:
    """Return a sample order whose batches have the same samples, moved to the ranks that keep them as far as possible.

    A rank's share of a batch has a fixed size (`shards.shard_indices`): samples beyond it go to ranks that keep fewer
    samples of this batch.

    Args:
        order: The samples of an epoch, int64 of shape (samples,).
        batch_size: The global batch size.
        ranks: The number of ranks.
    """
    return np.concatenate([_arrange(order[at : at + batch_size], ranks) for at in range(0, len(order), batch_size)])


def _arrange(batch: Array, ranks: int) -> Array:
    places = np.arange(len(batch))
    owners = owner(batch, ranks)
    by_owner = np.argsort(owners, kind="stable")
    number = places - np.searchsorted(owners[by_owner], owners[by_owner])  # of a sample among those of its owner
    place = owners[by_owner] + number * ranks  # rank r has the places r, r + ranks, ...
    fits = place < len(batch)
    arranged = np.empty_like(batch)
    arranged[place[fits]] = batch[by_owner[fits]]
    arranged[np.setdiff1d(places, place[fits])] = batch[by_owner[~fits]]
    return arranged
