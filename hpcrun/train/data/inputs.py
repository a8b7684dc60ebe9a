"""Input of `fit`, `evaluate` and `predict`: this rank's shards of the user's data."""

from __future__ import annotations

import sys
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.run.job import print_line
from hpcrun.train.data import python_data
from hpcrun.train.data.arrays import are_arrays, check_same_arrays
from hpcrun.train.data.shards import Shard
from hpcrun.train.ranks.replicas import replica
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.train.types import Data


class ShardedInput(NamedTuple):
    """Shards of batches, as input for Keras.

    Args:
        x: A `tf.data.Dataset` on TensorFlow, or if the user gave a dataset; otherwise a `ShardDataAdapter`.
        spec: The structure of the unsharded data; leaves have `shape` and `dtype`.
        steps: The number of batches in an epoch; None if unknown.
    """

    x: Data
    spec: Data
    steps: int | None


def shard_input(
    x: Data,
    y: Data = None,
    sample_weight: Data = None,
    *,
    batch_size: int | None = None,
    order: int | None = None,
    seed: int | None = None,
    class_weight: Mapping[int, float] | None = None,
    distribute: bool = True,
    first_epoch: int = 0,
    drop_batches: int = 0,
    skip_batches: int = 0,
    scalars: bool = False,
) -> ShardedInput:
    """Return this rank's shards for training or evaluation.

    Args:
        x: Arrays, a batched `tf.data.Dataset`, a `keras.utils.PyDataset`, a PyTorch DataLoader, or a generator.
        y: Targets, with arrays.
        sample_weight: Weight of each sample, with arrays.
        batch_size: The global batch size, with arrays (default: 32).
        order: Seed of the shuffles of arrays, and of the batches of a PyDataset, every epoch; None: no shuffle.
        seed: The seed for unseeded shuffles of a `tf.data.Dataset`.
        class_weight: As in Keras.
        distribute: Whether to shard batches among the ranks; if not, each rank uses its own batches, with equal
            weights.
        first_epoch: Number of the first epoch to train, from 0.
        drop_batches: Number of batches to skip in data that continues from epoch to epoch.
        skip_batches: Number of batches at the beginning of the first epoch that were trained before a restart.
        scalars: Whether the batches of a `tf.data.Dataset` may contain scalars, which only a custom step can interpret.

    Raises:
        HpcrunError: The type of the data is not supported, or the ranks' data differ.
    """
    if is_tf_dataset(x):
        _require_unset(x, (y, sample_weight, batch_size))
        _require_same_replica(x)
        if hasattr(x, "epochs"):
            x.epochs.done, x.epochs.skip = x.epochs.done + first_epoch, skip_batches
            return _input_from_shards(x, class_weight, drop_batches)
        return _input_from_dataset(
            x,
            seed,
            class_weight,
            distribute=distribute,
            first_epoch=first_epoch,
            drop_batches=drop_batches,
            scalars=scalars,
        )
    if are_arrays(x):
        _check_arrays(y, sample_weight, batch_size)
        # As in Keras, several inputs or targets may be a list, but tf.data would convert a list to one tensor.
        data = tuple(keras.tree.lists_to_tuples(part) for part in (x, y, sample_weight) if part is not None)
        if distribute:
            check_same_arrays(data, python_data.count_samples(data), batch_size)
        if keras.backend.backend() == "tensorflow" and not _is_memory_mapped(data):
            from hpcrun.train.data import tf_arrays

            shards = tf_arrays.shard_arrays(
                data, batch_size or 32, order, distribute=distribute, first_epoch=first_epoch
            )
            return _input_from_shards(shards, class_weight, drop_batches)
        stream = python_data.shard_arrays(data, batch_size or 32, order, distribute=distribute)
    elif isinstance(x, list):
        raise HpcrunError("x is a list of objects that are not arrays", hint=_array_hint("x", x))
    elif (hasattr(x, "__iter__") or isinstance(x, keras.utils.PyDataset)) and not _is_scipy_sparse(x):
        _require_unset(x, (y, sample_weight, batch_size))
        stream = python_data.shard_batches(x, order, distribute=distribute)
    else:
        raise HpcrunError(
            f"hpcrun.train cannot distribute a {type(x).__name__} to {world().size} ranks",
            hint=_array_hint("x", x)
            if _is_scipy_sparse(x)
            else "give NumPy arrays, a keras.utils.PyDataset, a generator, a PyTorch DataLoader or a tf.data.Dataset",
        )
    if class_weight:
        stream = python_data.weigh_classes(stream, class_weight)
    return _input_from_stream(stream, first_epoch, drop_batches)


def shard_predict_input(x: Data) -> ShardedInput:
    """Return this rank's shards of batches to predict.

    Args:
        x: As for `shard_input`, except arrays.
    """
    if is_tf_dataset(x):
        from hpcrun.train.data import tf_data

        if isinstance(x.element_spec, Shard):
            raise HpcrunError(
                "predict got an hpcrun.train.dataset, which holds this rank's samples only",
                hint="give predict the arrays, or a batched tf.data.Dataset",
            )
        dataset = tf_data.shard_predict_dataset(x)
        return ShardedInput(dataset, dataset.element_spec.data, None)
    return _input_from_stream(python_data.shard_batches(x, None, predict=True), 0, 0)


def is_tf_dataset(x: Data) -> bool:
    """Return whether x is a `tf.data.Dataset`, without importing TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(x, tensorflow.data.Dataset)


def _is_memory_mapped(data: Data) -> bool:
    """Return whether an array is memory-mapped; a rank reads only its own samples of such an array."""
    return any(isinstance(leaf, np.memmap) for leaf in keras.tree.flatten(data))


def announce_local_batches(distribute: bool, switch: str, action: str) -> None:
    """Print, unless `distribute` is true, that each rank uses all of its own batches."""
    if not distribute and world().rank == 0 and world().size > 1:
        print_line(f"INFO: {switch}=False: every rank {action} its own batches, and all ranks have the same weight")


def _input_from_dataset(
    x: Data,
    seed: int | None,
    class_weight: Mapping[int, float] | None,
    *,
    distribute: bool,
    first_epoch: int,
    drop_batches: int,
    scalars: bool,
) -> ShardedInput:
    from hpcrun.train.data import tf_data

    is_sharded = isinstance(x.element_spec, Shard)
    if distribute or is_sharded:
        sharded_dataset = tf_data.shard_dataset(x, seed, scalars=scalars)
    else:
        sharded_dataset = tf_data.keep_own_batches(x, scalars=scalars)
    steps = int(sharded_dataset.cardinality())
    # Every new iterator advances the seeds of shuffles, and Keras on TensorFlow creates two iterators per epoch if the
    # number of steps is known. For arrays, the first batch of an iterator advances the order.
    two_iterators = keras.backend.backend() == "tensorflow" and steps >= 0 and not is_sharded
    for _ in range(first_epoch * 2 if two_iterators else first_epoch):
        iterator = iter(sharded_dataset)
        if is_sharded:
            next(iterator, None)
    return _input_from_shards(sharded_dataset, class_weight, drop_batches)


def _input_from_shards(shards: Data, class_weight: Mapping[int, float] | None, drop_batches: int) -> ShardedInput:
    from hpcrun.train.data import tf_data

    if class_weight:
        shards = tf_data.weigh_classes(shards, class_weight)
    if drop_batches:
        shards = _skip_batches(shards, drop_batches)
    steps = int(shards.cardinality())
    return ShardedInput(shards, shards.element_spec.data, None if steps < 0 else steps)


def _input_from_stream(stream: python_data.ShardStream, first_epoch: int, drop_batches: int) -> ShardedInput:
    if keras.backend.backend() == "tensorflow":
        from hpcrun.train.data import tf_data

        epoch_numbers = count(first_epoch)
        source = tf_data.from_generator(lambda: stream.epoch(next(epoch_numbers)), stream.spec, stream.steps)
        if drop_batches:
            source = _skip_batches(source, drop_batches)
        return ShardedInput(source, stream.spec.data, stream.steps)
    if drop_batches and stream.steps is not None:
        raise _unknown_position_error()
    return ShardedInput(python_data.ShardDataAdapter(stream, first_epoch, drop_batches), stream.spec.data, stream.steps)


def _skip_batches(dataset: Data, drop_batches: int) -> Data:
    if int(dataset.cardinality()) >= 0:
        raise _unknown_position_error()
    return dataset.skip(drop_batches)


def _unknown_position_error() -> HpcrunError:
    return HpcrunError(
        "a checkpoint cannot resume in a finite data set whose epochs steps_per_epoch changes",
        hint="leave steps_per_epoch out, or repeat the data: dataset.repeat()",
    )


def _check_arrays(y: Data, sample_weight: Data, batch_size: int | None) -> None:
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None and not are_arrays(value):
            raise HpcrunError(f"{name} is a {type(value).__name__}, and x is an array", hint=_array_hint(name, value))
    if sample_weight is not None and y is None:
        raise HpcrunError(
            "sample_weight requires y",
            hint="give the targets, for example y=x if the model learns to reproduce its input",
        )
    if batch_size is not None and not (isinstance(batch_size, int | np.integer) and batch_size > 0):
        raise HpcrunError(f"batch_size={batch_size}", hint="give the samples of a batch over all ranks: 1, 2, 3, ...")


def _array_hint(name: str, value: Data) -> str:
    return f"give an array: {name}.toarray()" if _is_scipy_sparse(value) else f"give an array: np.asarray({name})"


def _is_scipy_sparse(value: Data) -> bool:
    """Return whether this is a SciPy sparse matrix."""
    return hasattr(value, "toarray")


def _require_same_replica(x: Data) -> None:
    """Raise an error if a dataset has the samples of another division of the ranks."""
    if (getattr(x, "replica", None) or replica()) != replica():
        raise HpcrunError(
            "this data set was divided among other ranks than the model: it was made before "
            "hpcrun.train.Model(model, stages=...), or for another model",
            hint="make the data set after the hpcrun.train.Model that it is for",
        )


def _require_unset(x: Data, other_arguments: Data) -> None:
    for name, value in zip(("y", "sample_weight", "batch_size"), other_arguments, strict=True):
        if value is not None:
            raise HpcrunError(
                f"{name} requires arrays, not a {type(x).__name__}",
                hint=f"let the {type(x).__name__} yield batches of (x, y, sample_weight), of the global batch size",
            )
