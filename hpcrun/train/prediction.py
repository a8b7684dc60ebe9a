"""Prediction on all ranks, with results in the order of the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.train.backends import reraise_original
from hpcrun.train.data.inputs import shard_predict_input
from hpcrun.train.data.python_data import count_samples
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.replicas import replica
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Data, Keras


def predict_batches(model: keras.Model, x: Data, **kwargs: Keras) -> Data:
    """Predict from batches, of which each rank gets a shard. Collective; all ranks get all predictions.

    Args:
        model: The Keras model.
        x: An iterable of batches.
        kwargs: Other arguments of `keras.Model.predict`.

    Returns:
        Arrays of (samples, ...), structured as the model's outputs.
    """
    shards = shard_predict_input(x)
    with reraise_original():
        local_predictions, positions = model.predict(shards.x, **kwargs)
    is_real_sample = positions >= 0
    local_part = keras.tree.map_structure(lambda a: a[is_real_sample], local_predictions), positions[is_real_sample]
    # Ranks without samples, and stages that are not the last, have no predictions.
    parts = [part for part in world().comm.allgather(local_part) if len(part[1])]
    all_predictions, all_positions = zip(*parts, strict=True)
    order = np.argsort(np.concatenate(all_positions))
    return keras.tree.map_structure(lambda *predictions: np.concatenate(predictions)[order], *all_predictions)


def predict_arrays(model: keras.Model, x: Data, **kwargs: Keras) -> Data:
    """Predict from arrays, of which each rank gets a slice. Collective; all ranks get all predictions.

    Args:
        model: The Keras model.
        x: Arrays of (samples, ...).
        kwargs: Other arguments of `keras.Model.predict`.

    Returns:
        Arrays of (samples, ...), structured as the model's outputs.
    """
    own, samples = replica(), count_samples(x)
    require_agreement({"number of samples": samples}, "give predict the same data on all ranks")
    start, stop = (samples * r // own.size for r in (own.rank, own.rank + 1))
    first_sample = min(
        start, samples - 1
    )  # Keras cannot predict 0 samples: a rank without samples predicts one sample and discards the result
    local_predictions = model.predict(
        keras.tree.map_structure(lambda a: a[first_sample : max(stop, first_sample + 1)], x), **kwargs
    )
    local_part = keras.tree.map_structure(lambda a: a[: stop - start], local_predictions)
    all_predictions = [part for part in world().comm.allgather(local_part) if len(keras.tree.flatten(part)[0])]
    return keras.tree.map_structure(lambda *predictions: np.concatenate(predictions), *all_predictions)
