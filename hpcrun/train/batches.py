"""Who gets which samples: every batch is dealt to the ranks like cards.

Rank r of p takes samples r, r + p, r + 2p, ... of a batch of B samples: B // p of them, the first B % p ranks one more
(Tarantella's rule). A rank's gradient then counts b_r / B. In a last batch of fewer samples than ranks some ranks get
none; they compute on a sample that counts 0, because an empty batch is NaN to many layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from hpcrun.errors import HpcrunError
from hpcrun.train.seeds import same_order
from hpcrun.train.world import shared_seed, world

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpcrun.train.kinds import Data


class Part(NamedTuple):
    """This rank's part of one batch, as it travels through `tf.data` into the training step.

    Args:
        data: What Keras expects: x, (x, y) or (x, y, sample_weight), first axis b_r (1 where b_r is 0).
        share: b_r / B, a float32 scalar.
    """

    data: Data
    share: tf.Tensor


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
    """Return this rank's part of every batch of some arrays, for `Model.fit` and `Model.evaluate`.

    Args:
        x: Arrays of (samples, ...), or a list, tuple or dict of them.
        y: Targets, likewise.
        sample_weight: Weights, likewise.
        batch_size: The global batch size, over all ranks.
        shuffle: Deal the samples in a new order every epoch, the same on all ranks.
        seed: The seed of these orders; without one all ranks take one of rank 0's (then all must call this function).
        load: Turns this rank's part of a batch of `x` into what the model takes, e.g. file names into images: only a
            rank's own samples are read. It is traced by `tf.data`.

    Returns:
        A dataset of `Part`, one a batch.

    Raises:
        HpcrunError: The arrays have different numbers of samples, or none.
    """
    data = keras.tree.map_structure(_tensor, tuple(part for part in (x, y, sample_weight) if part is not None))
    lengths = {int(t.shape[0]) for t in keras.tree.flatten(data)}
    if len(lengths) != 1 or not min(lengths):
        raise HpcrunError(f"x, y and sample_weight have {sorted(lengths)} samples", hint="give all the same number")
    samples = lengths.pop()
    steps = -(-samples // batch_size)
    order = np.random.default_rng(shared_seed() if shuffle and seed is None else seed)

    def indices(_: tf.Tensor) -> tf.Tensor:
        if not shuffle:
            return tf.range(samples, dtype=tf.int64)
        return tf.ensure_shape(tf.numpy_function(lambda: order.permutation(samples), [], tf.int64), [samples])

    def batches(indices: tf.Tensor) -> tf.data.Dataset:
        # Indices are dealt, not samples: a rank never touches the others' samples.
        return tf.data.Dataset.range(steps).map(_plain(lambda k: _part(indices[k * batch_size : (k + 1) * batch_size])))

    def take(part: Part) -> Part:
        taken = keras.tree.map_structure(lambda t: tf.gather(t, part.data), data)
        if load:
            taken = (load(taken[0]), *taken[1:])
        return Part(taken if len(taken) > 1 else taken[0], part.share)

    epoch = tf.data.Dataset.from_tensors(0).map(_plain(indices)).flat_map(_plain(batches))
    calls = world().threads if load else None
    epoch = epoch.apply(tf.data.experimental.assert_cardinality(steps))
    return _finish(epoch.map(_plain(take), num_parallel_calls=calls))


def deal(batched: tf.data.Dataset) -> tf.data.Dataset:
    """Return this rank's part of every batch of a dataset that was batched with the global batch size.

    Args:
        batched: Any dataset of batches, the same on all ranks; its shuffles without a seed get a common one.

    Returns:
        A dataset of `Part`; a dataset that is dealt already comes back as it is.

    Raises:
        HpcrunError: The elements have no batch axis.
    """
    if isinstance(batched.element_spec, Part):
        return batched
    if any(len(spec.shape) == 0 for spec in keras.tree.flatten(batched.element_spec)):
        raise HpcrunError("the tf.data.Dataset is not batched", hint="add .batch(B), B over all ranks")
    return _finish(same_order(batched).map(_plain(lambda *batch: _part(batch if len(batch) > 1 else batch[0]))))


def weigh_classes(dealt: tf.data.Dataset, class_weight: Mapping[int, float]) -> tf.data.Dataset:
    """Turn Keras's `class_weight` into sample weights.

    Args:
        dealt: A dataset of `Part` of (x, y), with y (b,), (b, 1) or one-hot (b, classes).
        class_weight: The weight of each class; 1 where it names none.
    """
    table = np.ones(max(class_weight) + 1, keras.config.floatx())
    table[list(class_weight)] = list(class_weight.values())

    def weigh(part: Part) -> Part:
        x, y = part.data
        classes = tf.argmax(y, -1) if len(y.shape) > 1 and y.shape[-1] != 1 else tf.reshape(tf.cast(y, tf.int64), [-1])
        known = tf.minimum(classes, len(table) - 1)
        weights = tf.where(classes < len(table), tf.gather(table, known), tf.ones((), table.dtype))  # (b,)
        return Part((x, y, weights), part.share)

    return dealt.map(_plain(weigh))


def _part(batch: Data) -> Part:
    me = world()
    total = tf.shape(keras.tree.flatten(batch)[0], tf.int64)[0]  # B
    mine = tf.range(tf.minimum(tf.constant(me.rank, tf.int64), total - 1), total, me.size)  # (b_r,)
    share = tf.where(me.rank < total, tf.size(mine) / tf.cast(total, tf.int32), 0.0)
    return Part(keras.tree.map_structure(lambda t: tf.gather(t, mine), batch), tf.cast(share, tf.float32))


def _tensor(array: Data) -> tf.Tensor:
    array = np.asarray(array)
    with tf.device("CPU"):  # tf.data runs there
        return tf.convert_to_tensor(array.astype(keras.config.floatx()) if array.dtype.kind == "f" else array)


def _finish(parts: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    # The autotuner's thread competed with the ranks for their cores, and outlived the training by up to 17 s.
    options.autotune.enabled = False
    options.deterministic = True  # ranks that see samples in different orders would train on some of them twice
    return parts.prefetch(2).with_options(options)


_plain = tf.autograph.experimental.do_not_convert  # nothing here needs AutoGraph, and its conversion takes a while
