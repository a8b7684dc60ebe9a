"""Creation of a model's variables before the first batch, so that they are equal on all ranks at the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.optimizer import find_optimizers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.data.inputs import ShardedInput
    from hpcrun.train.types import Data


def build(model: keras.Model, sharded_input: ShardedInput, step: str) -> None:
    """Create a compiled model's variables (weights, metrics, optimizer state) before the first batch.

    The variables of Keras's steps can be created without data. On TensorFlow, a custom step is traced as for the first
    batch, because it may call any layer with any part of the batch. A custom step that runs eagerly creates the
    variables in its first call.

    Args:
        model: A compiled model; existing variables are kept.
        sharded_input: The input of the step.
        step: Name of the step: `train_step` or `test_step`.

    Raises:
        HpcrunError: A custom step never updates the metrics given to `compile`.
    """
    if keras.backend.backend() == "tensorflow" and is_custom_step(model, step):
        _build_by_tracing(model, sharded_input, step)
    elif type(model).call is not keras.Model.call:  # a model without call() cannot be built
        _build_by_calling(model, sharded_input.spec)


def build_for_batch(model: keras.Model, x: Data, y: Data = None, sample_weight: Data = None) -> None:
    """Create the metrics of a compiled model with pipeline stages, of which the last stage alone computes the outputs.

    Args:
        model: The Keras model; without stages, its first step creates its variables.
        x: Arrays of (samples, ...).
        y: Targets.
        sample_weight: Weight of each sample, (samples,).
    """
    if model.training_state.pipeline and any(not getattr(metric, "built", True) for metric in model.metrics):
        batch = keras.tree.map_structure(
            lambda leaf: None if leaf is None else keras.ops.convert_to_tensor(leaf), (x, y, sample_weight)
        )
        _build_by_calling(model, batch)


def is_custom_step(model: keras.Model, step: str) -> bool:
    """Return whether a model overrides a step of `keras.Model`.

    Args:
        model: A model after `wrap_steps`.
        step: Name of the step: `train_step` or `test_step`.
    """
    original_step = getattr(model, step).inner
    return getattr(original_step, "__func__", original_step) is not getattr(keras.Model, step)


def _build_by_tracing(model: keras.Model, sharded_input: ShardedInput, step: str) -> None:
    import tensorflow as tf

    compiled_objects = (model._compile_loss, model._compile_metrics, *find_optimizers(model))  # noqa: SLF001
    if model.run_eagerly or model.training_state.traced.get(step) == compiled_objects:
        return
    spec = sharded_input.x.element_spec
    tf.function(getattr(model, step), autograph=False).get_concrete_function(spec)
    model._clear_losses()  # noqa: SLF001  (the losses of layers are tensors of the traced graph)
    if any(not getattr(metric, "built", True) for metric in model.metrics):
        raise HpcrunError(
            f"{type(model).__name__}.{step} never updates the metrics given to compile",
            hint="update the metrics in the step: self.compute_metrics(x, y, y_pred); or compile without metrics",
        )
    model.training_state.traced[step] = compiled_objects


def _build_by_calling(model: keras.Model, batch: Data) -> None:
    if not (model.built and getattr(model, "outputs", None)):
        # A subclass of Model has outputs only after a call. Keras calls it symbolically, without data.
        model._symbolic_build(data_batch=batch)  # noqa: SLF001
        return
    # A model with known outputs needs no tracing, which takes 1 s for ResNet-50.
    outputs = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
    x, y, sample_weight, y_pred = keras.tree.map_structure(
        lambda s: None if s is None else _placeholder_sample(s.shape, keras.backend.standardize_dtype(s.dtype)),
        (*keras.utils.unpack_x_y_sample_weight(batch), outputs),
    )
    if model.loss is not None and not model._compile_loss.built:  # noqa: SLF001
        model._clear_losses()  # noqa: SLF001  (the losses of layers may be tensors of an earlier trace)
        if model.training_state.pipeline:  # the losses of layers are on the ranks of their stages
            model._compile_loss(y, y_pred, sample_weight)  # noqa: SLF001
        else:
            model._compute_loss(x, y, y_pred, sample_weight, training=False)  # noqa: SLF001  (an override may lack the argument training)
    model.compute_metrics(x, y, y_pred, sample_weight)
    model.reset_metrics()
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _placeholder_sample(shape: Sequence[int | None], dtype: str) -> Data:
    return keras.ops.zeros([1, *(d or 1 for d in shape[1:])], dtype)
