"""The hook: gradients pass through the `Reducer` on their way into the optimizer.

All of Keras 3 funnels through `apply` of the outermost optimizer (`apply_gradients` and `LossScaleOptimizer` included).
Wrapping that method on the *instance* leaves the optimizer's class the user's own, so a saved model names plain Adam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from hpcrun.errors import HpcrunError
from hpcrun.train.reducer import Reducer
from hpcrun.train.shares import current
from hpcrun.train.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


def Optimizer(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:  # noqa: N802  (reads as a class)
    """Let an optimizer average its gradients over all ranks before each step; for custom training loops.

    All ranks count alike: give each rank a batch of the same size. `Model` needs no call of it.

    Args:
        optimizer: The outermost optimizer (the `LossScaleOptimizer`, where there is one). It is changed in place.

    Returns:
        The same object.

    Raises:
        HpcrunError: Keras runs on another backend than TensorFlow.
    """
    check_backend()
    if world().size == 1 or reducer_of(optimizer):
        return optimizer
    reducer, step = Reducer(world().comm), optimizer.apply

    def apply(grads: Sequence[tf.Tensor], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        step(mean(reducer, grads), trainable_variables)

    apply.reducer = reducer  # type: ignore[attr-defined]
    optimizer.apply = apply
    return optimizer


def check_backend() -> None:
    """Refuse the backends whose training steps are not wrapped yet.

    Raises:
        HpcrunError: Keras runs on another backend than TensorFlow.
    """
    if (backend := keras.backend.backend()) != "tensorflow":
        raise HpcrunError(
            f"hpcrun.train trains with TensorFlow; Keras runs on {backend}", hint="export KERAS_BACKEND=tensorflow"
        )


def reducer_of(optimizer: keras.optimizers.Optimizer) -> Reducer | None:
    """Return the `Reducer` that an optimizer's gradients pass through, or None."""
    return getattr(getattr(optimizer, "apply", None), "reducer", None)


def mean(reducer: Reducer, gradients: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
    """Return everybody's mean gradients, inside a `tf.function` or outside.

    Args:
        reducer: What communicates.
        gradients: One tensor a variable; None where the loss does not depend on it, IndexedSlices become dense.

    Returns:
        Tensors of the same shapes and dtypes; None stays None.
    """
    dense = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    if not dense:
        return list(gradients)
    wire = tf.float64 if any(g.dtype == tf.float64 for g in dense) else tf.float32
    share = 1 / reducer.comm.size if current() is None else current()

    def reduce(share: np.float64, *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        return reducer(arrays, float(share))

    # A list in and a list out: TensorFlow passes both without a copy, where concat and split would cost one each.
    arrays = [tf.cast(g, wire) for g in dense]
    sums = tf.numpy_function(reduce, [tf.cast(share, tf.float64), *arrays], [wire] * len(arrays))
    for total, gradient in zip(sums, dense, strict=True):
        total.set_shape(gradient.shape)
    reduced = iter([tf.cast(total, g.dtype) for total, g in zip(sums, dense, strict=True)])
    return [None if g is None else next(reduced) for g in gradients]
