"""Shards of batches of arrays in `tf.data`."""

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
from hpcrun.train.data.stable_shards import arrange
from hpcrun.train.data.tf_data import set_options, without_autograph
from hpcrun.train.ranks.collectives import shared_seed
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
    """Return this rank's shard of every batch of arrays, for `fit` and `evaluate`; all ranks must call this.

    Args:
        x: An array of (samples, ...), or a list, tuple or dict of such arrays; or a list of numbers or strings.
        y: Targets, likewise.
        sample_weight: Weights, likewise.
        batch_size: The global batch size, over all ranks.
        shuffle: Shuffle the samples every epoch, in the same order on all ranks.
        seed: The seed of the shuffles and of `seeds`; default: one of rank 0's.
        load: Converts this rank's shard of a batch of `x` to the model's input, e.g. file names to images, so that a
            rank reads only its own samples. `tf.data` traces it. If it has a parameter `seeds`, it gets int32 of (b, 2)
            for `tf.random.stateless_uniform` and the like: for each sample and epoch other ones, which depend on
            neither the number of ranks nor an interruption.
        stable_shards: Give a rank nearly the same samples in every epoch, so that `load` can keep them in memory. The
            batches have the same samples, divided among the ranks in another way.

    Returns:
        A dataset with one `Shard` per batch.

    Raises:
        HpcrunError: The arrays have different numbers of samples or none, or the ranks' arrays differ.
    """
    arguments = (part for part in (x, y, sample_weight) if part is not None)
    data = tuple(part if are_arrays(part) else np.asarray(part) for part in arguments)
    check_same_arrays(data, count_samples(data), batch_size)
    takes_seeds = load is not None and "seeds" in inspect.signature(load).parameters
    shared = shared_seed() if seed is None and (shuffle or takes_seeds) else seed
    seeds = shared if shuffle else None, shared if takes_seeds else None
    return shard_arrays(data, batch_size, seeds[0], load=load, load_seed=seeds[1], stable=stable_shards)


class Epochs:
    """The epochs of a dataset that were begun, and the part of the next one that an interrupted `fit` has done.

    Args:
        done: The number of epochs that were begun.
    """

    def __init__(self, done: int) -> None:
        self.done = done
        self.skip = 0  # the number of batches to leave out at the beginning of the next epoch

    def begin(self) -> tuple[int, int]:
        """Return the number of the next epoch, from 0, and its batches that are not used."""
        begun = self.done, self.skip
        self.done, self.skip = self.done + 1, 0
        return begun


def shard_arrays(
    data: tuple[Data, ...],
    batch_size: int,
    seed: int | None,
    *,
    distribute: bool = True,
    first: int = 0,
    load: Callable[..., Data] | None = None,
    load_seed: int | None = None,
    stable: bool = False,
) -> tf.data.Dataset:
    """Return a rank's shards of arrays, one epoch per iterator; `python_data.shard_arrays` yields the same ones.

    Args:
        data: (x,), (x, y) or (x, y, sample_weight) of arrays (samples, ...).
        batch_size: The global batch size.
        seed: The seed of the sample order, which changes every epoch; None for no shuffle.
        distribute: Whether the ranks share the batches; otherwise each keeps its own.
        first: The first epoch.
        load: As for `dataset`.
        load_seed: The seed of its `seeds`; None if it takes none.
        stable: As `stable_shards` of `dataset`.

    Returns:
        A dataset of `Shard`, with its `Epochs` as the attribute `epochs`.

    Raises:
        HpcrunError: The arrays have different numbers of samples, or none.
    """
    data = keras.tree.map_structure(_to_tensor, data)
    samples = count_samples(data)
    steps = -(-samples // batch_size)
    epochs = Epochs(first)

    def begin_epoch() -> tuple[Any, ...]:
        number, skip = epochs.begin()
        draw = np.random.SeedSequence([load_seed or 0, number]).generate_state(1)
        order = epoch_order(samples, seed, number)
        return arrange(order, batch_size, world().size) if stable else order, draw.astype(np.int32)[0], np.int64(skip)

    def order(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        indices, draw, skip = tf.numpy_function(begin_epoch, [], [tf.int64, tf.int32, tf.int64])
        return tf.ensure_shape(indices, [samples]), tf.ensure_shape(draw, []), tf.ensure_shape(skip, [])

    def make_shards(order: tf.Tensor, draw: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        # The indices are sharded, not the samples: a rank never touches the others' samples.
        full_batches = samples // batch_size * batch_size
        shards = []
        for total, indices in ((batch_size, order[:full_batches]), (samples - full_batches, order[full_batches:])):
            if total and indices.shape[0]:
                local, share = shard_indices(total, distribute=distribute)
                rows = tf.gather(tf.reshape(indices, [-1, total]), local, axis=1)  # (batches, b_r)
                shares = tf.fill(tf.shape(rows)[:1], share)
                shards.append(tf.data.Dataset.from_tensor_slices(Shard(rows, shares)))
        numbered = reduce(tf.data.Dataset.concatenate, shards).enumerate()
        return numbered.map(without_autograph(lambda number, part: (part, draw, number < skip)))

    def take(part: Shard, draw: tf.Tensor, skipped: tf.Tensor) -> Shard:
        gathered = keras.tree.map_structure(lambda t: tf.gather(t, part.data), data)
        if load:
            few = slice(None, tf.where(skipped, 1, tf.size(part.data)))  # of a batch that is not used, load one sample
            x = keras.tree.map_structure(lambda t: t[few], gathered[0])
            numbers = tf.cast(part.data[few], tf.int32)
            seeds = {"seeds": tf.stack([tf.fill(tf.shape(numbers), draw), numbers], 1)} if load_seed is not None else {}
            gathered = (load(x, **seeds), *gathered[1:])
        return Shard(unpack_single(gathered), part.share)

    epoch = tf.data.Dataset.from_tensors(0).map(without_autograph(order)).flat_map(without_autograph(make_shards))
    calls = world().threads if load else None
    epoch = epoch.apply(tf.data.experimental.assert_cardinality(steps))
    shards = set_options(epoch.map(without_autograph(take), num_parallel_calls=calls))
    shards.epochs = epochs
    return shards


def _to_tensor(array: Data) -> tf.Tensor:
    array = np.asarray(array)
    with tf.device("CPU"):  # tf.data runs there
        return tf.convert_to_tensor(
            array.astype(keras.config.floatx(), copy=False) if array.dtype.kind == "f" else array
        )
