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
from hpcrun.train.backends import on_host
from hpcrun.train.data.shares import current
from hpcrun.train.gradients.optimizer import caught
from hpcrun.train.ranks.waiting import waiting
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.kinds import Data

_reduce_on_rank = keras_loss.reduce_weighted_values
_update_mean = keras.metrics.Mean.update_state


@contextmanager
def of_all_ranks(model: keras.Model) -> Iterator[None]:
    """Let Keras's losses, and means of them, that are computed (or traced) inside the block count by the whole batch.

    Args:
        model: Whose they are.
    """
    if keras_loss.reduce_weighted_values is _reduce:  # around all of the step already
        yield
        return
    keras_loss.reduce_weighted_values = _reduce
    of_outputs = getattr(getattr(model, "_compile_loss", None), "metrics", [])
    keras.metrics.Mean.update_state = partialmethod(_track, of_outputs=frozenset(map(id, of_outputs)))
    try:
        yield
    finally:
        keras_loss.reduce_weighted_values = _reduce_on_rank
        keras.metrics.Mean.update_state = _update_mean


def _track(metric: keras.metrics.Mean, values: Data, sample_weight: Data = None, *, of_outputs: frozenset[int]) -> None:
    # What a whole batch came to counts once a batch, which is a share on each rank. Keras counts an output's loss so
    # where it does not know the batch size when it traces the step; one rank may know its part's, and another not.
    whole = sample_weight is None and keras.ops.ndim(values) == 0
    if whole or (id(metric) in of_outputs and keras.backend.backend() == "tensorflow"):
        sample_weight = current()
    _update_mean(metric, values, sample_weight=sample_weight)


def _reduce(
    values: Data,
    sample_weight: Data = None,
    mask: Data = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: str | None = None,
) -> Data:
    loss = _reduce_on_rank(values, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)
    if len(loss.shape) > 0 or len(values.shape) == 0:  # reduced by nobody, or by the user
        return loss
    if reduction == "sum":
        return keras.ops.divide_no_nan(loss, keras.ops.cast(current(), loss.dtype))
    if mask is None and not (reduction == "mean_with_sample_weight" and sample_weight is not None):
        return loss
    counted = mask
    if reduction == "mean_with_sample_weight":
        counted = keras_loss.apply_mask(sample_weight, mask, dtype=loss.dtype, reduction=reduction)
    mine = keras.ops.sum(keras.ops.cast(counted, loss.dtype))
    return keras.ops.divide_no_nan(loss * mine, _over_ranks(mine) * keras.ops.cast(current(), loss.dtype))


def _over_ranks(mine: Data) -> Data:
    """Return the sum of a scalar over the ranks that have samples."""
    if caught():
        raise HpcrunError(
            "XLA cannot compile a loss with a mask, or with reduction='mean_with_sample_weight': its ranks add up what "
            "they counted in the middle of the step",
            hint="compile with jit_compile=False, or give sample_weight and the default reduction",
        )

    def add(mine: np.float32, share: np.float32) -> list[np.ndarray]:
        total = np.zeros((), np.float64)
        with waiting("the samples that a loss counts"):
            world().comm.Allreduce(np.array(float(mine) if share > 0 else 0.0), total)
        return [total.astype(np.float32)]

    scalars = [keras.ops.cast(keras.ops.stop_gradient(value), "float32") for value in (mine, current())]
    return keras.ops.cast(on_host(add, scalars, [()], "float32")[0], mine.dtype)
