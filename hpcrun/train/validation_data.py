"""Validation data of `fit`: split from the training data, or sharded over the ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.data import python_data
from hpcrun.train.data.arrays import are_arrays
from hpcrun.train.data.inputs import announce_local_batches, shard_input
from hpcrun.train.model_build import build, is_custom_step
from hpcrun.train.ranks.agreement import require_agreement

if TYPE_CHECKING:
    from hpcrun.train.types import Data


def split_validation(data: Data, fraction: float) -> Data:
    """Split arrays into training and validation samples, as Keras's `validation_split` does.

    Raises:
        HpcrunError: The data are not arrays, or one of the two parts would be empty.
    """
    if not are_arrays(data):
        raise HpcrunError("validation_split needs arrays", hint="give validation_data instead")
    samples = python_data.count_samples([part for part in data if part is not None])
    boundary = math.floor(samples * (1 - fraction))
    if not 0 < boundary < samples:
        raise HpcrunError(
            f"validation_split={fraction} splits {samples} samples into {boundary} to train on and "
            f"{samples - boundary} others",
            hint="give a fraction between 0 and 1 that leaves samples for training and validation",
        )
    return tuple(
        keras.tree.map_structure(lambda a, part=part: None if a is None else a[part], data)
        for part in (slice(None, boundary), slice(boundary, None))
    )


def shard_validation(model: keras.Model, data: Data, batch_size: int | None, distribute: bool) -> Data:
    """Return this rank's batches of the validation data, after building the model's validation step. Collective.

    Args:
        model: The Keras model to validate.
        data: (x, y) or (x, y, sample_weight), or an iterable of batches.
        batch_size: The global batch size, with arrays; None for 32.
        distribute: False: this rank gets all batches.

    Raises:
        HpcrunError: The data cannot be sharded, or differ between ranks.
    """
    announce_local_batches(distribute, "distribute_validation", "validates on")
    size = batch_size if are_arrays(data) else None
    arrays = keras.utils.unpack_x_y_sample_weight(data)
    scalars = is_custom_step(model, "test_step")
    sharded_input = shard_input(*arrays, batch_size=size, distribute=distribute, scalars=scalars)
    if distribute:
        require_agreement(
            {"number of batches of validation": sharded_input.steps}, "validate on the same data on all ranks"
        )
    build(model, sharded_input, "test_step")
    return sharded_input.x
