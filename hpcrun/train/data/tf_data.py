"""Shards of batches of `tf.data` datasets and Python generators, as a `tf.data.Dataset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from hpcrun.errors import HpcrunError
from hpcrun.train.data.deterministic import make_deterministic
from hpcrun.train.data.python_data import (
    check_unweighted,
    class_weight_table,
    unpack_single,
)
from hpcrun.train.data.shards import PredictShard, Shard, first_rank_with_samples, is_scalar
from hpcrun.train.ranks.replicas import replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hpcrun.train.types import Data


def shard_dataset(
    batched_dataset: tf.data.Dataset, seed: int | None = None, *, scalars: bool = False
) -> tf.data.Dataset:
    """Return this rank's shard of every batch of a dataset with the global batch size.

    Args:
        batched_dataset: A dataset of batches, equal on all ranks.
        seed: Seed for the dataset's unseeded shuffles; default: a random seed from rank 0.
        scalars: Whether elements may contain scalars, which all ranks get.

    Returns:
        A dataset of `Shard`; a dataset of shards is returned unchanged.

    Raises:
        HpcrunError: The elements have no batch axis, or the ranks shuffle differently.
    """
    if isinstance(batched_dataset.element_spec, Shard):
        return batched_dataset
    return set_options(
        _require_batches(make_deterministic(batched_dataset, seed), scalars=scalars).map(
            without_autograph(lambda *batch: _local_shard(unpack_single(batch)))
        )
    )


def shard_predict_dataset(batched_dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return this rank's shard of every batch to predict.

    Args:
        batched_dataset: As for `shard_dataset`; y and sample_weight are ignored.

    Returns:
        A dataset of `PredictShard`.

    Raises:
        HpcrunError: See `shard_dataset`.
    """

    def number_samples(first_index: tf.Tensor, batch: Data) -> tuple[tf.Tensor, PredictShard]:
        x = keras.utils.unpack_x_y_sample_weight(batch)[0]
        batch_size = tf.shape(keras.tree.flatten(x)[0], tf.int64)[0]
        indices = _local_indices(batch_size)
        positions = tf.where(replica().rank < batch_size, first_index + indices, -tf.ones_like(indices))
        return first_index + batch_size, PredictShard(
            unpack_single((keras.tree.map_structure(lambda t: tf.gather(t, indices), x),)), positions
        )

    full_batches = _require_batches(make_deterministic(batched_dataset)).map(
        without_autograph(lambda *batch: unpack_single(batch))
    )
    return set_options(full_batches.scan(tf.constant(0, tf.int64), without_autograph(number_samples)))


def keep_own_batches(batched_dataset: tf.data.Dataset, *, scalars: bool = False) -> tf.data.Dataset:
    """Return every batch of this rank's dataset unsharded, with the same weight on all ranks."""
    return set_options(
        _require_batches(batched_dataset, scalars=scalars).map(
            without_autograph(lambda *batch: _whole_batch(unpack_single(batch)))
        )
    )


def from_generator(
    generate: Callable[[], Iterator[Shard | PredictShard]], spec: Data, steps: int | None
) -> tf.data.Dataset:
    """Return a dataset from a Python generator of shards.

    Args:
        generate: The generator function, called once per epoch.
        spec: The structure of a shard, with a `keras.KerasTensor` for each array.
        steps: Number of shards per epoch; None if unknown.
    """
    signature = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), spec)
    epoch = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if steps is not None:
        epoch = epoch.apply(tf.data.experimental.assert_cardinality(steps))
    return set_options(epoch)


def weigh_classes(shards: tf.data.Dataset, class_weight: Mapping[int, float]) -> tf.data.Dataset:
    """Convert Keras's `class_weight` to sample weights.

    Args:
        shards: A dataset of `Shard` with data (x, y); the shape of y is (b,), (b, 1) or (b, classes), one-hot.
        class_weight: The weight of each class; missing classes have the weight 1.

    Raises:
        HpcrunError: The batches have no targets, or already have sample weights.
    """
    check_unweighted(shards.element_spec.data)
    table = class_weight_table(class_weight)

    def add_weights(shard: Shard) -> Shard:
        x, y = shard.data
        classes = tf.argmax(y, -1) if len(y.shape) > 1 and y.shape[-1] != 1 else tf.reshape(tf.cast(y, tf.int64), [-1])
        clipped_classes = tf.minimum(classes, len(table) - 1)
        weights = tf.where(classes < len(table), tf.gather(table, clipped_classes), tf.ones((), table.dtype))  # (b,)
        return Shard((x, y, weights), shard.share)

    return shards.map(without_autograph(add_weights))


def _require_batches(batches: tf.data.Dataset, *, scalars: bool = False) -> tf.data.Dataset:
    specs = keras.tree.flatten(batches.element_spec)
    if any(isinstance(spec, tf.SparseTensorSpec) for spec in specs):
        raise HpcrunError(
            "the tf.data.Dataset has sparse tensors, which hpcrun.train cannot distribute",
            hint="make them dense: .map(lambda x, y: (tf.sparse.to_dense(x), y))",
        )
    if all(map(is_scalar, specs)) or (any(map(is_scalar, specs)) and not scalars):
        raise HpcrunError(
            "the tf.data.Dataset is not batched: it yields scalars, which have no axis of samples",
            hint="add .batch(B), with the global batch size B; a number for a whole batch needs a custom train_step, "
            "or repeat the number for every sample: tf.fill(tf.shape(x)[:1], number)",
        )
    return batches


def _local_indices(total: tf.Tensor) -> tf.Tensor:
    """Return this rank's indices (see `shards.shard_indices`) as a tensor of the traced graph."""
    return tf.range(tf.minimum(tf.constant(replica().rank, tf.int64), total - 1), total, replica().size)  # (b_r,)


def _local_shard(batch: Data) -> Shard:
    batch_size = tf.shape(first_rank_with_samples(batch), tf.int64)[0]  # B
    indices = _local_indices(batch_size)
    share = tf.where(replica().rank < batch_size, tf.size(indices) / tf.cast(batch_size, tf.int32), 0.0)
    data = keras.tree.map_structure(lambda t: t if is_scalar(t) else tf.gather(t, indices), batch)
    return Shard(data, tf.cast(share, tf.float32))


def _whole_batch(batch: Data) -> Shard:
    return Shard(batch, np.float32(1 / replica().size))


def set_options(shards: tf.data.Dataset) -> tf.data.Dataset:
    """Set the options of a pipeline of shards; call this last."""
    options = tf.data.Options()
    # The autotuner's thread competed with the ranks for cores, and ran for up to 17 s after training.
    options.autotune.enabled = False
    options.deterministic = True  # without a fixed order, ranks could train on some samples twice
    return shards.prefetch(2).with_options(options)


# AutoGraph's conversion is slow, and this function does not need it
without_autograph = tf.autograph.experimental.do_not_convert
