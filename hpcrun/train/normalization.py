"""Batch normalization with the statistics of the whole batch, over all ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import keras
from keras import ops

from hpcrun.train.batch_stats import combine_over_ranks
from hpcrun.train.data.batch_share import current_share
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Data


@keras.saving.register_keras_serializable(package="hpcrun")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]  # keras is untyped
    """`keras.layers.BatchNormalization` with training statistics of the whole batch, over all ranks.

    With this layer, p ranks take the same steps as one process, even if a rank's shard of the batch is small. Each
    layer with C channels costs one MPI_Allgather of 3C numbers per rank in the forward pass, and one MPI_Allreduce of
    2C numbers in the backward pass. In training, all ranks must call the layers in the same order. In inference, and
    with one rank, the layer behaves like its parent class, and it has the same arguments and weights. The layer
    supports TensorFlow (without `jit_compile=True`), PyTorch, and JAX (outside of `jax.checkpoint`, which does not
    allow ordered callbacks).

    Models with this layer can be loaded after ``import hpcrun.train.normalization``.
    """

    @property
    def supports_jit(self) -> bool:
        """Whether Keras may compile the model with XLA by default."""
        return keras.backend.backend() != "tensorflow" or world().size == 1

    @supports_jit.setter
    def supports_jit(self, value: bool) -> None:
        pass  # ignore the value True, which keras.layers.Layer assigns

    def _moments(self, inputs: Data, mask: Data) -> tuple[Data, Data]:
        """Return the mean and the (biased) variance of each channel, each of shape (C,), in the dtype of the inputs."""
        if world().size == 1:
            return super()._moments(inputs, mask)  # type: ignore[no-any-return]
        return _global_moments(self, inputs, mask)


_keras_moments = keras.layers.BatchNormalization._moments  # noqa: SLF001


def synchronize_keras_layers() -> None:
    """Patch `keras.layers.BatchNormalization(synchronized=True)` to use the statistics of all ranks.

    Keras synchronizes only over the replicas of `tf.distribute`. The class is patched instead of single layers, because
    a model may create layers in its first call, and clones have new layers. Saved models do not need hpcrun. A second
    call has no effect.
    """
    if world().size > 1:
        keras.layers.BatchNormalization._moments = _moments_if_synchronized  # noqa: SLF001


def disable_xla(model: keras.Model) -> None:
    """Turn off XLA by default for models with synchronized batch normalization.

    Args:
        model: A model, before `compile`.
    """
    for layer in model._flatten_layers() if world().size > 1 else ():  # noqa: SLF001
        if isinstance(layer, keras.layers.BatchNormalization) and layer.synchronized:
            layer.supports_jit = False


def _moments_if_synchronized(layer: keras.layers.BatchNormalization, inputs: Data, mask: Data) -> tuple[Data, Data]:
    return (_global_moments if layer.synchronized else _keras_moments)(layer, inputs, mask)


def _global_moments(layer: keras.layers.BatchNormalization, inputs: Data, mask: Data) -> tuple[Data, Data]:
    share = current_share()
    share = ops.cast(1 / world().size if share is None else share, inputs.dtype)
    counts, mean, variance = _local_moments(inputs, mask, layer._reduction_axes)  # noqa: SLF001
    counts = ops.where(share > 0, counts, ops.zeros_like(counts))
    combined_stats = combine_over_ranks(ops.stack([counts, mean, variance]), share)  # (3, C)
    return combined_stats[1], combined_stats[2]


def _local_moments(inputs: Data, mask: Data, axes: list[int]) -> tuple[Data, Data, Data]:
    """Return count, mean and variance of each channel's values on this rank, each of shape (C,)."""
    if mask is None:
        mean = ops.mean(inputs, axes, keepdims=True)
        squares = ops.square(inputs - ops.stop_gradient(mean))  # the gradient with respect to the mean is 0
        shape, mean, variance = ops.shape(inputs), ops.reshape(mean, (-1,)), ops.mean(squares, axes)
        return math.prod((ops.cast(shape[a], mean.dtype) for a in axes), start=ops.ones_like(mean)), mean, variance
    is_counted = ops.cast(ops.broadcast_to(ops.expand_dims(mask, -1), ops.shape(inputs)), "bool")
    counts = ops.sum(ops.cast(is_counted, inputs.dtype), axes, keepdims=True)
    divisors = ops.maximum(counts, 1)  # a count is 0 if all values are masked
    mean = ops.sum(ops.where(is_counted, inputs, 0), axes, keepdims=True) / divisors
    squares = ops.square(ops.where(is_counted, inputs - ops.stop_gradient(mean), 0))
    return ops.reshape(counts, (-1,)), ops.reshape(mean, (-1,)), ops.sum(squares, axes) / ops.reshape(divisors, (-1,))
