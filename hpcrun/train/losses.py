"""Scaling of losses that are not means over a rank's samples.

The ranks' gradients are combined as the sum of share_r * g_r (see `Reducer`), and Keras averages a loss over batches by
their samples. Both are right for a mean over samples. Sums, and means over weights or unmasked steps, are scaled here,
so that their weighted sum over the ranks is the loss of the whole batch.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partialmethod
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras.src.losses import loss as keras_loss

from hpcrun.errors import HpcrunError
from hpcrun.train.backends import call_on_host
from hpcrun.train.data.batch_share import current_share
from hpcrun.train.gradients.optimizer import captured
from hpcrun.train.ranks.waiting import waiting
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.types import Data

_keras_reduce = keras_loss.reduce_weighted_values
_keras_update_mean = keras.metrics.Mean.update_state


@contextmanager
def scale_losses(model: keras.Model) -> Iterator[None]:
    """Scale Keras's losses, and means of them, that are computed or traced inside the block to the whole batch.

    Args:
        model: The model of the losses.
    """
    if keras_loss.reduce_weighted_values is _reduce_over_ranks:  # the outer block does it
        yield
        return
    keras_loss.reduce_weighted_values = _reduce_over_ranks
    output_loss_ids = getattr(getattr(model, "_compile_loss", None), "metrics", [])
    keras.metrics.Mean.update_state = partialmethod(
        _update_mean_with_share, output_loss_ids=frozenset(map(id, output_loss_ids))
    )
    try:
        yield
    finally:
        keras_loss.reduce_weighted_values = _keras_reduce
        keras.metrics.Mean.update_state = _keras_update_mean


def _update_mean_with_share(
    metric: keras.metrics.Mean, values: Data, sample_weight: Data = None, *, output_loss_ids: frozenset[int]
) -> None:
    # A scalar of a whole batch counts as this rank's share of it. Keras treats the loss of an output like that where it
    # does not know the batch size when it traces the step, which may be so on some ranks only.
    per_batch = sample_weight is None and keras.ops.ndim(values) == 0
    if per_batch or (id(metric) in output_loss_ids and keras.backend.backend() == "tensorflow"):
        sample_weight = current_share()
    _keras_update_mean(metric, values, sample_weight=sample_weight)


def _reduce_over_ranks(
    values: Data,
    sample_weight: Data = None,
    mask: Data = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: str | None = None,
) -> Data:
    loss = _keras_reduce(values, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)
    if len(loss.shape) > 0 or len(values.shape) == 0:  # not reduced, or by the user
        return loss
    if reduction == "sum":
        return keras.ops.divide_no_nan(loss, keras.ops.cast(current_share(), loss.dtype))
    if mask is None and not (reduction == "mean_with_sample_weight" and sample_weight is not None):
        return loss
    counted = mask
    if reduction == "mean_with_sample_weight":
        counted = keras_loss.apply_mask(sample_weight, mask, dtype=loss.dtype, reduction=reduction)
    local_count = keras.ops.sum(keras.ops.cast(counted, loss.dtype))
    return keras.ops.divide_no_nan(
        loss * local_count, _sum_over_ranks(local_count) * keras.ops.cast(current_share(), loss.dtype)
    )


def _sum_over_ranks(local_count: Data) -> Data:
    """Return the sum of a scalar over the ranks that have samples."""
    if captured():
        raise HpcrunError(
            "XLA cannot compile a loss with a mask, or with reduction='mean_with_sample_weight': its normalization is "
            "an allreduce inside the step",
            hint="compile with jit_compile=False, or give sample_weight and the default reduction",
        )

    def add(local_count: np.float32, share: np.float32) -> list[np.ndarray]:
        total = np.zeros((), np.float64)
        with waiting("the sum of a loss's weights"):
            world().comm.Allreduce(np.array(float(local_count) if share > 0 else 0.0), total)
        return [total.astype(np.float32)]

    scalars = [keras.ops.cast(keras.ops.stop_gradient(value), "float32") for value in (local_count, current_share())]
    return keras.ops.cast(call_on_host(add, scalars, [()], "float32")[0], local_count.dtype)
