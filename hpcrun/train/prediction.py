"""Predictions of all ranks, in the order of the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.train.backends import told
from hpcrun.train.data.feeds import asked
from hpcrun.train.data.streams import one_length
from hpcrun.train.ranks.agreement import agree
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.kinds import Data, Keras


def predicted(model: keras.Model, x: Data, **how: Keras) -> Data:
    """Predict from batches, each rank its part of each; all ranks get all.

    Args:
        model: The Keras model.
        x: What yields batches.
        how: Further arguments of `keras.Model.predict`.

    Returns:
        Arrays of (samples, ...), structured as the model's outputs.
    """
    parts = asked(x)
    with told():
        mine, place = model.predict(parts.x, **how)
    here = place >= 0
    everybody, places = zip(
        *world().comm.allgather((keras.tree.map_structure(lambda a: a[here], mine), place[here])), strict=True
    )
    order = np.argsort(np.concatenate(places))
    return keras.tree.map_structure(lambda *parts: np.concatenate(parts)[order], *everybody)


def predicted_arrays(model: keras.Model, x: Data, **how: Keras) -> Data:
    """Predict from arrays, each rank one stretch of the samples; all ranks get all.

    Args:
        model: The Keras model.
        x: Arrays of (samples, ...).
        how: Further arguments of `keras.Model.predict`.

    Returns:
        Arrays of (samples, ...), structured as the model's outputs.
    """
    me, samples = world(), one_length(x)
    agree({"number of samples": samples}, "give predict the same data on all ranks")
    start, stop = (samples * r // me.size for r in (me.rank, me.rank + 1))
    first = min(start, samples - 1)  # Keras cannot predict nothing: a rank without samples drops one
    mine = model.predict(keras.tree.map_structure(lambda a: a[first : max(stop, first + 1)], x), **how)
    everybody = me.comm.allgather(keras.tree.map_structure(lambda a: a[: stop - start], mine))
    return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *everybody)
