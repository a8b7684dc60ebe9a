"""Shards of batches in `tf.data`: of arrays, of datasets, and of Python iterators."""

from __future__ import annotations

from functools import reduce
from itertools import count
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from hpcrun.errors import HpcrunError
from hpcrun.train.data.arrays import are_arrays, check_same_arrays
from hpcrun.train.data.deterministic import make_deterministic
from hpcrun.train.data.python_data import (
    check_unweighted,
    class_weight_table,
    count_samples,
    epoch_order,
    unpack_single,
)
from hpcrun.train.data.shards import PredictShard, Shard, first_with_samples, is_scalar, shard_indices
from hpcrun.train.ranks.collectives import shared_seed
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hpcrun.train.types import Data


def dataset(
    x: Data,
    y: Data = None,
    sample_weight: Data = None,
    *,
    batch_size: int = 32,
    shuffle: bool = False,
    seed: int | None = None,
    load: Callable[[Data], Data] | None = None,
) -> tf.data.Dataset:
    """Return this rank's shard of every batch of arrays, for `fit` and `evaluate`; all ranks must call this.

    Args:
        x: An array of (samples, ...), or a list, tuple or dict of such arrays; or a list of numbers or strings.
        y: Targets, likewise.
        sample_weight: Weights, likewise.
        batch_size: The global batch size, over all ranks.
        shuffle: Shuffle the samples every epoch, in the same order on all ranks.
        seed: The seed of the shuffles; default: one of rank 0's.
        load: Converts this rank's shard of a batch of `x` to the model's input, e.g. file names to images, so that a
            rank reads only its own samples. `tf.data` traces it.

    Returns:
        A dataset with one `Shard` per batch.

    Raises:
        HpcrunError: The arrays have different numbers of samples or none, or the ranks' arrays differ.
    """
    arguments = (part for part in (x, y, sample_weight) if part is not None)
    data = tuple(part if are_arrays(part) else np.asarray(part) for part in arguments)
    check_same_arrays(data, count_samples(data), batch_size)
    order = (shared_seed() if seed is None else seed) if shuffle else None
    return shard_arrays(data, batch_size, order, load=load)


def shard_arrays(
    data: tuple[Data, ...],
    batch_size: int,
    seed: int | None,
    *,
    distribute: bool = True,
    first: int = 0,
    load: Callable[[Data], Data] | None = None,
) -> tf.data.Dataset:
    """Return a rank's shards of arrays, one epoch per iterator; `python_data.shard_arrays` yields the same ones.

    Args:
        data: (x,), (x, y) or (x, y, sample_weight) of arrays (samples, ...).
        batch_size: The global batch size.
        seed: The seed of the sample order, which changes every epoch; None for no shuffle.
        distribute: Whether the ranks share the batches; otherwise each keeps its own.
        first: The first epoch.
        load: As for `dataset`.

    Returns:
        A dataset of `Shard`.

    Raises:
        HpcrunError: The arrays have different numbers of samples, or none.
    """
    data = keras.tree.map_structure(_to_tensor, data)
    samples = count_samples(data)
    steps = -(-samples // batch_size)
    epochs = count(first)

    def order(_: tf.Tensor) -> tf.Tensor:
        if seed is None:
            return tf.range(samples, dtype=tf.int64)
        shuffled = tf.numpy_function(lambda: epoch_order(samples, seed, next(epochs)), [], tf.int64)
        return tf.ensure_shape(shuffled, [samples])

    def make_shards(order: tf.Tensor) -> tf.data.Dataset:
        # The indices are sharded, not the samples: a rank never touches the others' samples.
        full_batches = samples // batch_size * batch_size
        shards = []
        for total, indices in ((batch_size, order[:full_batches]), (samples - full_batches, order[full_batches:])):
            if total and indices.shape[0]:
                local, share = shard_indices(total, distribute=distribute)
                rows = tf.gather(tf.reshape(indices, [-1, total]), local, axis=1)  # (batches, b_r)
                shares = tf.fill(tf.shape(rows)[:1], share)
                shards.append(tf.data.Dataset.from_tensor_slices(Shard(rows, shares)))
        return reduce(tf.data.Dataset.concatenate, shards)

    def take(part: Shard) -> Shard:
        taken = keras.tree.map_structure(lambda t: tf.gather(t, part.data), data)
        if load:
            taken = (load(taken[0]), *taken[1:])
        return Shard(unpack_single(taken), part.share)

    epoch = tf.data.Dataset.from_tensors(0).map(_without_autograph(order)).flat_map(_without_autograph(make_shards))
    calls = world().threads if load else None
    epoch = epoch.apply(tf.data.experimental.assert_cardinality(steps))
    return _set_options(epoch.map(_without_autograph(take), num_parallel_calls=calls))


def shard_dataset(batched: tf.data.Dataset, seed: int | None = None, *, scalars: bool = False) -> tf.data.Dataset:
    """Return this rank's shard of every batch of a dataset that is batched with the global batch size.

    Args:
        batched: A dataset of batches, the same on all ranks.
        seed: The seed for its unseeded shuffles; default: one of rank 0's.
        scalars: Whether its elements may contain scalars, which all ranks get.

    Returns:
        A dataset of `Shard`; a dataset of shards is returned unchanged.

    Raises:
        HpcrunError: The elements have no batch axis, or the ranks shuffle differently.
    """
    if isinstance(batched.element_spec, Shard):
        return batched
    return _set_options(
        _require_batches(make_deterministic(batched, seed), scalars=scalars).map(
            _without_autograph(lambda *batch: _local_shard(unpack_single(batch)))
        )
    )


def shard_predict_dataset(batched: tf.data.Dataset) -> tf.data.Dataset:
    """Return this rank's shard of every batch to predict.

    Args:
        batched: As for `shard_dataset`; y and sample_weight are ignored.

    Returns:
        A dataset of `PredictShard`.

    Raises:
        HpcrunError: As `shard_dataset`.
    """

    def numbered(first_index: tf.Tensor, batch: Data) -> tuple[tf.Tensor, PredictShard]:
        x = keras.utils.unpack_x_y_sample_weight(batch)[0]
        total = tf.shape(keras.tree.flatten(x)[0], tf.int64)[0]
        local = _local_indices(total)
        place = tf.where(world().rank < total, first_index + local, -tf.ones_like(local))
        return first_index + total, PredictShard(
            unpack_single((keras.tree.map_structure(lambda t: tf.gather(t, local), x),)), place
        )

    full_batches = _require_batches(make_deterministic(batched)).map(
        _without_autograph(lambda *batch: unpack_single(batch))
    )
    return _set_options(full_batches.scan(tf.constant(0, tf.int64), _without_autograph(numbered)))


def keep_own_batches(batched: tf.data.Dataset, *, scalars: bool = False) -> tf.data.Dataset:
    """Return every batch of a rank's own dataset unsharded, with the same weight as on the other ranks."""
    return _set_options(
        _require_batches(batched, scalars=scalars).map(
            _without_autograph(lambda *batch: _whole_batch(unpack_single(batch)))
        )
    )


def from_generator(
    generate: Callable[[], Iterator[Shard | PredictShard]], spec: Data, steps: int | None
) -> tf.data.Dataset:
    """Return a dataset from a Python generator of shards.

    Args:
        generate: The generator function, called once per epoch.
        spec: The structure of its items, of `keras.KerasTensor`.
        steps: The number of items, if known.
    """
    signature = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), spec)
    epoch = tf.data.Dataset.from_generator(generate, output_signature=signature)
    if steps is not None:
        epoch = epoch.apply(tf.data.experimental.assert_cardinality(steps))
    return _set_options(epoch)


def weigh_classes(distribute: tf.data.Dataset, class_weight: Mapping[int, float]) -> tf.data.Dataset:
    """Turn Keras's `class_weight` into sample weights.

    Args:
        distribute: A dataset of `Shard` of (x, y), with y (b,), (b, 1) or one-hot (b, classes).
        class_weight: The weight of each class; 1 for classes that are missing.

    Raises:
        HpcrunError: There are no targets, or there are weights already.
    """
    check_unweighted(distribute.element_spec.data)
    table = class_weight_table(class_weight)

    def weigh(part: Shard) -> Shard:
        x, y = part.data
        classes = tf.argmax(y, -1) if len(y.shape) > 1 and y.shape[-1] != 1 else tf.reshape(tf.cast(y, tf.int64), [-1])
        known = tf.minimum(classes, len(table) - 1)
        weights = tf.where(classes < len(table), tf.gather(table, known), tf.ones((), table.dtype))  # (b,)
        return Shard((x, y, weights), part.share)

    return distribute.map(_without_autograph(weigh))


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
            hint="add .batch(B), with the global batch size B; a number for a whole batch needs a train_step of your "
            "own, or repeat it for every sample: tf.fill(tf.shape(x)[:1], number)",
        )
    return batches


def _local_indices(total: tf.Tensor) -> tf.Tensor:
    """Return the indices of `shards.shard_indices` as a traced tensor."""
    return tf.range(tf.minimum(tf.constant(world().rank, tf.int64), total - 1), total, world().size)  # (b_r,)


def _local_shard(batch: Data) -> Shard:
    total = tf.shape(first_with_samples(batch), tf.int64)[0]  # B
    local = _local_indices(total)
    share = tf.where(world().rank < total, tf.size(local) / tf.cast(total, tf.int32), 0.0)
    data = keras.tree.map_structure(lambda t: t if is_scalar(t) else tf.gather(t, local), batch)
    return Shard(data, tf.cast(share, tf.float32))


def _whole_batch(batch: Data) -> Shard:
    return Shard(batch, np.float32(1 / world().size))


def _to_tensor(array: Data) -> tf.Tensor:
    array = np.asarray(array)
    with tf.device("CPU"):  # tf.data runs there
        return tf.convert_to_tensor(
            array.astype(keras.config.floatx(), copy=False) if array.dtype.kind == "f" else array
        )


def _set_options(shards: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    # The autotuner's thread competed with the ranks for their cores, and outlived training by up to 17 s.
    options.autotune.enabled = False
    options.deterministic = True  # in different orders, ranks would train on some samples twice
    return shards.prefetch(2).with_options(options)


_without_autograph = tf.autograph.experimental.do_not_convert  # AutoGraph's conversion is slow and not needed here
