"""Training steps of virtual workers, which divide the shard of a rank; see `gradients.virtual_workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.compiled_steps import compile_step, restore_step
from hpcrun.train.data.batch_share import use_share
from hpcrun.train.data.shards import first_rank_with_samples, is_scalar
from hpcrun.train.gradients.optimizer import CapturedStep, capture_gradients
from hpcrun.train.gradients.virtual_workers import count_workers
from hpcrun.train.gradients.worker_gradients import apply_worker_gradients, to_one_tensor
from hpcrun.train.losses import scale_losses
from hpcrun.train.steps import accept_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.data.shards import Shard
    from hpcrun.train.types import Data, Keras


def choose_step(model: keras.Model) -> None:
    """Let a compiled model's training step be that of virtual workers, one compiled by XLA, or Keras's own.

    Args:
        model: A model after `wrap_steps`, changed in place.
    """
    if (workers := count_workers()) > 1 and model.optimizer:
        divide_step(model, workers)
    elif keras.backend.backend() == "tensorflow":
        (compile_step if model.jit_compile and model.optimizer else restore_step)(model)


def divide_step(model: keras.Model, workers: int) -> None:
    """Divide each shard of a batch among the virtual workers of this rank, which compute their gradients in turn.

    Worker k takes the samples k, k + K, k + 2K and so on of the shard: those that the rank with the worker's number
    takes in a job with as many ranks as there are workers.

    Args:
        model: A compiled model after `wrap_steps`, changed in place.
        workers: The number of virtual workers of this rank (K).

    Raises:
        HpcrunError: The model or its step needs all samples of a batch at once.
    """
    model.jit_compile = False
    step = model.train_step.inner
    if hasattr(step, "python_function"):  # gradients inside the graph of a tf.function are not accessible
        raise _step_error(workers, "this train_step is a tf.function")
    captured: list[CapturedStep] = []

    def forward_backward(data: Data, share: Data) -> tuple[Keras, list[Data]]:
        with use_share(share), scale_losses(model), capture_gradients() as steps:
            logs = step(data)
        if len(steps) != 1:
            raise _step_error(workers, f"this one takes {len(steps)}")
        captured[:] = steps
        return logs, [to_one_tensor(gradient) for gradient in steps[0].gradients if gradient is not None]

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        forward_backward = tf.function(forward_backward, reduce_retracing=True, autograph=False)

    def train_step(shard: Shard) -> Keras:
        _require_no_batch_statistics(model, workers)
        size = keras.ops.shape(first_rank_with_samples(shard.data))[0]
        batch = keras.ops.round(keras.ops.divide_no_nan(keras.ops.cast(size, "float32"), shard.share))
        statistics = _MeanStatistics(model)
        logs, gradients, samples = None, [], []
        for number in range(workers):
            # A rank without a sample has a placeholder sample, and a batch size of 0 here.
            count = keras.ops.cast(keras.ops.maximum(size - number + workers - 1, 0) // workers, "float32")
            samples.append(keras.ops.where(batch > 0, count, 0.0))
            metrics = [keras.ops.copy(variable.value) for variable in model.metrics_variables]
            statistics.start()
            logs, worker_gradients = forward_backward(
                _take(shard.data, keras.ops.minimum(number, size - 1), workers),
                keras.ops.divide_no_nan(samples[-1], batch),
            )
            statistics.add()
            gradients.append(worker_gradients)
            for variable, old in zip(model.metrics_variables, metrics, strict=False):
                variable.assign(keras.ops.where(samples[-1] > 0, variable.value, old))
        statistics.finish(workers)
        apply_worker_gradients(captured[0], gradients, keras.ops.stack(samples), batch)
        return logs

    model.train_step = accept_shards(model, train_step, takes_shard=True, is_training=True)
    model.train_step.inner = step
    model.train_function = None


def _take(data: Data, start: Data, interval: int) -> Data:
    """Return the samples of a shard from one on, at an interval; scalars are for all samples."""
    return keras.tree.map_structure(lambda leaf: leaf if is_scalar(leaf) else leaf[start::interval], data)


def _step_error(workers: int, reason: str) -> HpcrunError:
    return HpcrunError(
        f"--virtual-workers={workers} needs a train_step with exactly one optimizer step, and {reason}",
        hint="use Keras's own train_step, or leave out --virtual-workers",
    )


def _require_no_batch_statistics(model: keras.Model, workers: int) -> None:
    """Refuse layers that need the statistics of a whole batch, which no worker has."""
    from hpcrun.train.normalization import SyncBatchNormalization

    for layer in model._flatten_layers(include_self=False):  # noqa: SLF001
        if isinstance(layer, SyncBatchNormalization) or getattr(layer, "synchronized", False):
            raise HpcrunError(
                f"--virtual-workers={workers}: the layer {layer.name!r} needs the statistics of the whole batch",
                hint="use keras.layers.BatchNormalization without synchronized=True, or leave out --virtual-workers",
            )


class _MeanStatistics:
    """Moving statistics of a step of several workers: each starts from the same values, and their mean is kept.

    Args:
        model: The model; all its non-trainable float variables count as statistics.
    """

    def __init__(self, model: keras.Model) -> None:
        self._variables = [variable for variable in model.non_trainable_variables if "float" in variable.dtype]
        self._before = [keras.ops.copy(variable.value) for variable in self._variables]
        self._changes: Sequence[Data] = [keras.ops.zeros_like(value) for value in self._before]

    def start(self) -> None:
        """Restore the values from before the step."""
        for variable, value in zip(self._variables, self._before, strict=True):
            variable.assign(value)

    def add(self) -> None:
        """Add what a worker has changed."""
        triples = zip(self._changes, self._variables, self._before, strict=True)
        self._changes = [change + (variable.value - before) for change, variable, before in triples]

    def finish(self, workers: int) -> None:
        """Assign the mean over the workers."""
        for variable, before, change in zip(self._variables, self._before, self._changes, strict=True):
            variable.assign(before + change / workers)
