"""Losses that are no mean over a rank's samples: what they are to the whole batch.

Ranks' gradients are combined as the sum of share_r * g_r (see `Reducer`), and Keras averages a loss over batches by
their samples. Both are right for a mean over samples. A sum, or a mean over weights or unmasked steps, is made right
here: the rank's loss becomes the one whose weighted sum over the ranks is the loss of the whole batch.
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
    """Let Keras's losses, and means of them, that are computed (or traced) inside the block count by the whole batch.

    Args:
        model: Whose they are.
    """
    if keras_loss.reduce_weighted_values is _reduce_over_ranks:  # around all of the step already
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
    # What a whole batch came to counts once a batch, which is a share on each rank. Keras counts an output's loss so
    # where it does not know the batch size when it traces the step; one rank may know its part's, and another not.
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
    if len(loss.shape) > 0 or len(values.shape) == 0:  # reduced by nobody, or by the user
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
            "XLA cannot compile a loss with a mask, or with reduction='mean_with_sample_weight': its ranks add up what "
            "they counted in the middle of the step",
            hint="compile with jit_compile=False, or give sample_weight and the default reduction",
        )

    def add(local_count: np.float32, share: np.float32) -> list[np.ndarray]:
        total = np.zeros((), np.float64)
        with waiting("the samples that a loss counts"):
            world().comm.Allreduce(np.array(float(local_count) if share > 0 else 0.0), total)
        return [total.astype(np.float32)]

    scalars = [keras.ops.cast(keras.ops.stop_gradient(value), "float32") for value in (local_count, current_share())]
    return keras.ops.cast(call_on_host(add, scalars, [()], "float32")[0], local_count.dtype)
