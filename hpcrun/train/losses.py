"""Scaling of losses that are not means over samples.

Gradients of the ranks are combined as the sum of share_r * g_r (see `Reducer`), and Keras averages the losses of
batches weighted by their numbers of samples. If a loss is a mean over samples, the results are those of the whole
batch. Sums, and means over weights or unmasked steps, are scaled so that their weighted sum over the ranks is the loss
of the whole batch.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partialmethod
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras.src.losses import loss as keras_loss

from hpcrun.errors import HpcrunError
from hpcrun.run.waiting import waiting
from hpcrun.train.backends import call_on_host
from hpcrun.train.data.batch_share import current_share
from hpcrun.train.gradients.optimizer import is_capturing
from hpcrun.train.gradients.virtual_workers import count_workers
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.types import Data

_keras_reduce = keras_loss.reduce_weighted_values
_keras_update_mean = keras.metrics.Mean.update_state
_is_in_micro_batches = [False]


@contextmanager
def scale_losses(model: keras.Model, *, in_micro_batches: bool = False) -> Iterator[None]:
    """Scale losses, and means of losses, that Keras computes or traces inside the block.

    Args:
        model: The model whose losses are computed.
        in_micro_batches: Whether a rank computes its shard of a batch in parts, so that losses cannot be collective.
    """
    outer, _is_in_micro_batches[0] = _is_in_micro_batches[0], in_micro_batches
    try:
        with _scale_losses(model):
            yield
    finally:
        _is_in_micro_batches[0] = outer


@contextmanager
def _scale_losses(model: keras.Model) -> Iterator[None]:
    if keras_loss.reduce_weighted_values is _reduce_over_ranks:  # an outer block already scales losses
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
    # The weight of a scalar for a whole batch is this rank's share of the batch. Keras also updates the loss of an
    # output with a scalar if the batch size is unknown when the step is traced, which may happen on some ranks only.
    is_batch_scalar = sample_weight is None and keras.ops.ndim(values) == 0
    if is_batch_scalar or (id(metric) in output_loss_ids and keras.backend.backend() == "tensorflow"):
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
    # do not scale losses without a reduction, or losses that the user's code has reduced
    if len(loss.shape) > 0 or len(values.shape) == 0:
        return loss
    if reduction == "sum":
        return keras.ops.divide_no_nan(loss, keras.ops.cast(current_share(), loss.dtype))
    if mask is None and not (reduction == "mean_with_sample_weight" and sample_weight is not None):
        return loss
    counted_weights = mask
    if reduction == "mean_with_sample_weight":
        counted_weights = keras_loss.apply_mask(sample_weight, mask, dtype=loss.dtype, reduction=reduction)
    local_count = keras.ops.sum(keras.ops.cast(counted_weights, loss.dtype))
    return keras.ops.divide_no_nan(
        loss * local_count, _sum_over_ranks(local_count) * keras.ops.cast(current_share(), loss.dtype)
    )


def _sum_over_ranks(local_count: Data) -> Data:
    """Return the sum of a scalar over the ranks that have samples. Collective."""
    if _is_in_micro_batches[0]:
        raise HpcrunError(
            "pipeline stages cannot normalize a loss with a mask, or with reduction='mean_with_sample_weight': no "
            "micro-batch has the weights of the whole batch",
            hint="give sample_weight and the default reduction, and no mask_zero=True or Masking layer",
        )
    if is_capturing():
        if (workers := count_workers()) > 1:
            raise HpcrunError(
                f"--virtual-workers={workers}: virtual workers cannot normalize a loss with a mask, or with "
                "reduction='mean_with_sample_weight': no worker has the weights of the whole batch",
                hint="give sample_weight and the default reduction, or leave out --virtual-workers",
            )
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
