"""The model's side of the hook: what a rank's share of the batch means to Keras's training and test steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from hpcrun.train.batches import Part
from hpcrun.train.optimizer import check_backend
from hpcrun.train.shares import sharing
from hpcrun.train.state import sum_metrics
from hpcrun.train.world import allreduce, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.kinds import Data, Keras

    Step = Callable[[Part | Data], Keras]


def attach(model: keras.Model) -> None:
    """Teach one Keras model to train and test on a `Part`; once is enough, twice does no harm.

    The methods are wrapped on the instance: a subclass's own `train_step` keeps working, and what is not a `Part`
    passes through as if nothing had happened.

    Args:
        model: Changed in place.

    Raises:
        HpcrunError: Keras runs on another backend than TensorFlow.
    """
    check_backend()
    if getattr(model.train_step, "dealt", False):
        return
    model.train_step = _on_part(model, model.train_step)
    model.test_step = _on_part(model, model.test_step)
    model.train_function = model.test_function = None  # compiled around the steps as they were
    results = model._get_metrics_result_or_logs  # noqa: SLF001

    def results_of_all(logs: Keras) -> Keras:
        # Keras asks here after an epoch and after an evaluation, before any callback sees the result.
        sum_metrics(model)
        found = results(logs)
        if found is not logs or not logs:
            return found
        # Figures of a custom step that no metric holds: all ranks must at least see the same ones.
        return keras.tree.map_structure(lambda v: allreduce(np.asarray(v, np.float64)) / world().size, logs)

    model._get_metrics_result_or_logs = results_of_all  # noqa: SLF001


def _on_part(model: keras.Model, step: Step) -> Step:
    def on_part(data: Part | Data) -> Keras:
        if not isinstance(data, Part):
            return step(data)
        before = [tf.identity(v.value) for v in model.metrics_variables]
        with sharing(data.share):
            logs = step(data.data)
        if world().size > 1:  # a sample that counts 0 in the gradient counts nothing in the metrics either
            for variable, value in zip(model.metrics_variables, before, strict=False):
                variable.assign(tf.where(data.share > 0, variable.value, value))
        return logs

    on_part.dealt = True  # type: ignore[attr-defined]
    return on_part
