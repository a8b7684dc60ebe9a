"""Sums of the gradients of a stage over the micro-batches of a step, on TensorFlow.

The backward pass adds the gradient of each weight to its sum as soon as it is computed, so that a rank holds one
gradient per weight, whatever the number of micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence

    import keras

    from hpcrun.train.types import Data

_LARGE_BYTES = 2**20  # size of a gradient above which the memory for zeros matters more than the time of a call


class GradientSums:
    """The sums of the gradients of some weights.

    Gradients of embeddings are rows, as in one process, because optimizers treat rows differently.

    Args:
        weights: The trainable variables of a stage.
    """

    def __init__(self, weights: Sequence[keras.Variable]) -> None:
        self.weights = weights
        self._sums: dict[int, tf.Variable] = {}
        self._rows: dict[int, tuple[tf.Variable, tf.Variable]] = {}

    def trained(self) -> list[keras.Variable]:
        """Return the weights on which the loss depends; known after the first backward pass."""
        return [self.weights[number] for number in sorted({*self._sums, *self._rows})]

    def gradients(self) -> list[tf.Tensor | tf.IndexedSlices]:
        """Return the sum of the gradients of each weight of `trained`, inside or outside of a graph."""
        slices = {
            number: tf.IndexedSlices(
                values.value(), indices.value(), tf.constant([int(size) for size in self.weights[number].shape])
            )
            for number, (values, indices) in self._rows.items()
        }
        gradients = {number: total.value() for number, total in self._sums.items()} | slices
        return [gradients[number] for number in sorted(gradients)]

    def reset(self, *, large: bool) -> None:
        """Set the sums to 0: large ones one by one outside of graphs, which would hold all zeros at once.

        Args:
            large: Whether to set the large or the other sums.
        """
        for total in self._sums.values():
            if large == (total.shape.num_elements() * total.dtype.size > _LARGE_BYTES):
                total.assign(tf.zeros(total.shape, total.dtype))
        for values, indices in self._rows.values() if large else ():
            values.assign(values.value()[:0])
            indices.assign(indices.value()[:0])

    def weight_values(self, token: Data) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Return the value of each weight, whose gradient the backward pass adds to the sums.

        Args:
            token: A scalar, of which the backward pass must compute the gradient.
        """
        return [(weight, self._value(number, weight, token)) for number, weight in enumerate(self.weights)]

    def _value(self, number: int, weight: keras.Variable, token: Data) -> tf.Tensor:
        @tf.custom_gradient  # type: ignore[untyped-decorator]  # tensorflow is untyped
        def read(value: Data, token: Data) -> Data:
            def backward(gradient: Data) -> tuple[None, Data]:
                with tf.control_dependencies(self._add(number, weight, gradient)):
                    return None, tf.zeros_like(token)

            return tf.identity(value), backward

        return read(tf.stop_gradient(weight.value), token)

    def _add(self, number: int, weight: keras.Variable, gradient: Data) -> list[Data]:
        """Add a gradient to the sums of a weight, which are created when the first gradient is traced."""
        shape = tuple(weight.shape)
        if not isinstance(gradient, tf.IndexedSlices):
            if number not in self._sums:
                with tf.init_scope():
                    self._sums[number] = tf.Variable(tf.zeros(shape, weight.dtype), trainable=False)
            return [self._sums[number].assign_add(tf.cast(gradient, weight.dtype))]
        if number not in self._rows:
            with tf.init_scope():
                self._rows[number] = tuple(
                    tf.Variable(tf.zeros([0, *row], dtype), trainable=False, shape=[None, *row])
                    for row, dtype in ((shape[1:], weight.dtype), ((), gradient.indices.dtype))
                )
        values, indices = self._rows[number]
        return [
            values.assign(tf.concat([values.value(), tf.cast(gradient.values, values.dtype)], 0)),
            indices.assign(tf.concat([indices.value(), gradient.indices], 0)),
        ]
