"""Shards of batches of arrays, as a `tf.data.Dataset`."""

from __future__ import annotations

import inspect
from functools import reduce
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from hpcrun.train.data.arrays import are_arrays, check_same_arrays
from hpcrun.train.data.python_data import count_samples, epoch_order, unpack_single
from hpcrun.train.data.shards import Shard, shard_indices
from hpcrun.train.data.stable_shards import arrange_samples
from hpcrun.train.data.tf_data import set_options, without_autograph
from hpcrun.train.ranks.collectives import shared_seed
from hpcrun.train.ranks.replicas import replica
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Data


def dataset(
    x: Data,
    y: Data = None,
    sample_weight: Data = None,
    *,
    batch_size: int = 32,
    shuffle: bool = False,
    seed: int | None = None,
    load: Callable[..., Data] | None = None,
    stable_shards: bool = False,
) -> tf.data.Dataset:
    """Return this rank's shard of every batch of arrays, for `fit` and `evaluate`. Collective.

    Args:
        x: Inputs: an array of (samples, ...), a list, tuple or dict of such arrays, or a list of numbers or strings.
        y: Targets, of the same types as x.
        sample_weight: Weight of each sample, of the same types as x.
        batch_size: The global batch size, over all ranks.
        shuffle: Whether to shuffle the samples every epoch, in the same order on all ranks.
        seed: Seed of the shuffles and of the parameter `seeds` of `load`; default: a random seed from rank 0.
        load: Function that converts this rank's shard of a batch of `x` to the model's input (such as file names to
            images), so that a rank reads only its own samples. `tf.data` traces the function. Its parameter `seeds`, if
            it has one, is an int32 tensor of (batch size, 2) for functions such as `tf.random.stateless_uniform`. These
            seeds differ for each sample and epoch, but depend neither on the number of ranks nor on restarts.
        stable_shards: Whether to give a rank nearly the same samples in every epoch, so that `load` can cache them. The
            samples of each batch stay the same; only their division among the ranks changes.

    Returns:
        A dataset of one `Shard` per batch.

    Raises:
        HpcrunError: The arrays are empty, have different numbers of samples, or differ between ranks.
    """
    arguments = (part for part in (x, y, sample_weight) if part is not None)
    data = tuple(part if are_arrays(part) else np.asarray(part) for part in arguments)
    check_same_arrays(data, count_samples(data), batch_size)
    takes_seeds = load is not None and "seeds" in inspect.signature(load).parameters
    common_seed = shared_seed() if seed is None and (shuffle or takes_seeds) else seed
    seeds = common_seed if shuffle else None, common_seed if takes_seeds else None
    return shard_arrays(data, batch_size, seeds[0], load=load, load_seed=seeds[1], stable_shards=stable_shards)


class EpochCounter:
    """Counter of the epochs of a dataset, with the number of batches to skip in the next epoch.

    Args:
        begun_epochs: Number of epochs that have begun.
    """

    def __init__(self, begun_epochs: int) -> None:
        self.done = begun_epochs
        self.skip = 0  # number of batches to skip at the beginning of the next epoch

    def begin(self) -> tuple[int, int]:
        """Begin the next epoch; return its number, from 0, and the number of its batches to skip."""
        epoch_and_skip = self.done, self.skip
        self.done, self.skip = self.done + 1, 0
        return epoch_and_skip


def shard_arrays(
    data: tuple[Data, ...],
    batch_size: int,
    seed: int | None,
    *,
    distribute: bool = True,
    first_epoch: int = 0,
    load: Callable[..., Data] | None = None,
    load_seed: int | None = None,
    stable_shards: bool = False,
) -> tf.data.Dataset:
    """Return a rank's shards of arrays, one epoch per iterator, equal to those of `python_data.shard_arrays`.

    Args:
        data: (x,), (x, y) or (x, y, sample_weight), arrays of shape (samples, ...).
        batch_size: The global batch size.
        seed: Seed of the sample order, which changes every epoch; None: no shuffle.
        distribute: Whether to shard batches among the ranks; if not, each rank uses all of its batches.
        first_epoch: Number of the first epoch, from 0.
        load: As for `dataset`.
        load_seed: Seed of the parameter `seeds` of `load`; None if `load` has no such parameter.
        stable_shards: See the parameter of `dataset`.

    Returns:
        A dataset of `Shard`, whose attribute `epochs` is an `EpochCounter`, and `replica` is that of its samples.

    Raises:
        HpcrunError: The arrays are empty, or have different numbers of samples.
    """
    data = keras.tree.map_structure(_to_tensor, data)
    samples = count_samples(data)
    steps = -(-samples // batch_size)
    epochs = EpochCounter(first_epoch)
    replicas = replica().size

    def begin_epoch() -> tuple[Any, ...]:
        number, skip = epochs.begin()
        epoch_seed = np.random.SeedSequence([load_seed or 0, number]).generate_state(1)
        order = epoch_order(samples, seed, number)
        return (
            arrange_samples(order, batch_size, replicas) if stable_shards else order,
            epoch_seed.astype(np.int32)[0],
            np.int64(skip),
        )

    def order(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        indices, epoch_seed, skip = tf.numpy_function(begin_epoch, [], [tf.int64, tf.int32, tf.int64])
        return tf.ensure_shape(indices, [samples]), tf.ensure_shape(epoch_seed, []), tf.ensure_shape(skip, [])

    def make_shards(order: tf.Tensor, epoch_seed: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        # Shard the indices, not the samples: a rank never reads samples of other ranks.
        full_batches = samples // batch_size * batch_size
        shards = []
        for total, indices in ((batch_size, order[:full_batches]), (samples - full_batches, order[full_batches:])):
            if total and indices.shape[0]:
                local, share = shard_indices(total, distribute=distribute)
                rows = tf.gather(tf.reshape(indices, [-1, total]), local, axis=1)  # (batches, b_r)
                shares = tf.fill(tf.shape(rows)[:1], share)
                shards.append(tf.data.Dataset.from_tensor_slices(Shard(rows, shares)))
        numbered_shards = reduce(tf.data.Dataset.concatenate, shards).enumerate()
        return numbered_shards.map(without_autograph(lambda number, part: (part, epoch_seed, number < skip)))

    def read_shard(shard: Shard, epoch_seed: tf.Tensor, is_skipped: tf.Tensor) -> Shard:
        arrays_of_shard = keras.tree.map_structure(lambda t: tf.gather(t, shard.data), data)
        if load:
            loaded_positions = slice(
                None, tf.where(is_skipped, 1, tf.size(shard.data))
            )  # load only one sample of a batch that is skipped
            x = keras.tree.map_structure(lambda t: t[loaded_positions], arrays_of_shard[0])
            sample_numbers = tf.cast(shard.data[loaded_positions], tf.int32)
            seeds = (
                {"seeds": tf.stack([tf.fill(tf.shape(sample_numbers), epoch_seed), sample_numbers], 1)}
                if load_seed is not None
                else {}
            )
            arrays_of_shard = (load(x, **seeds), *arrays_of_shard[1:])
        return Shard(unpack_single(arrays_of_shard), shard.share)

    epoch = tf.data.Dataset.from_tensors(0).map(without_autograph(order)).flat_map(without_autograph(make_shards))
    parallel_calls = world().threads if load else None
    epoch = epoch.apply(tf.data.experimental.assert_cardinality(steps))
    shards = set_options(epoch.map(without_autograph(read_shard), num_parallel_calls=parallel_calls))
    shards.epochs, shards.replica = epochs, replica()
    return shards


def _to_tensor(array: Data) -> tf.Tensor:
    array = np.asarray(array)
    with tf.device("CPU"):  # tf.data runs on the CPU
        return tf.convert_to_tensor(
            array.astype(keras.config.floatx(), copy=False) if array.dtype.kind == "f" else array
        )
