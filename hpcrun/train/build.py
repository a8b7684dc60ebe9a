"""A model's variables, created before its first batch: then all ranks begin alike, and a checkpoint finds its place."""

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

    What Keras's own steps do with a batch is known. One of the model's own alone knows what its batches are, and what
    it calls with which part of them: it is traced on TensorFlow, as it will be for the first batch. Where it runs
    eagerly, its first run builds.

    Args:
        model: A compiled model; what is built already stays.
        sharded_input: What it will be given.
        step: `train_step` or `test_step`, whichever takes it.

    Raises:
        HpcrunError: A step of the model's own leaves metrics alone whose results Keras will ask for.
    """
    if keras.backend.backend() == "tensorflow" and is_custom_step(model, step):
        _build_by_tracing(model, sharded_input, step)
    elif type(model).call is not keras.Model.call:  # or it is never called: Keras's other backends build what they can
        _build_by_calling(model, sharded_input.spec)


def is_custom_step(model: keras.Model, step: str) -> bool:
    """Return whether a model's step is not Keras's.

    Args:
        model: One that `attach` has changed.
        step: `train_step` or `test_step`.
    """
    inner = getattr(model, step).inner
    return getattr(inner, "__func__", inner) is not getattr(keras.Model, step)


def _build_by_tracing(model: keras.Model, sharded_input: ShardedInput, step: str) -> None:
    import tensorflow as tf

    compiled = (model._compile_loss, model._compile_metrics, *find_optimizers(model))  # noqa: SLF001
    if model.run_eagerly or model.training_state.traced.get(step) == compiled:
        return
    spec = sharded_input.x.element_spec
    tf.function(getattr(model, step), autograph=False).get_concrete_function(spec)
    model._clear_losses()  # noqa: SLF001  (a layer's are tensors of what was traced)
    if any(not getattr(metric, "built", True) for metric in model.metrics):
        raise HpcrunError(
            f"compile was given metrics that {type(model).__name__}.{step} never updates",
            hint="update them in it: self.compute_metrics(x, y, y_pred); or compile without metrics",
        )
    model.training_state.traced[step] = compiled


def _build_by_calling(model: keras.Model, batch: Data) -> None:
    if not (model.built and getattr(model, "outputs", None)):
        # A subclass of Model shows its outputs only when it is called; Keras calls it symbolically, without data.
        model._symbolic_build(data_batch=batch)  # noqa: SLF001
        return
    # The same for a model whose outputs are known, without tracing it (1 s of ResNet-50, on every rank at once).
    outputs = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
    x, y, sample_weight, y_pred = keras.tree.map_structure(
        lambda s: None if s is None else _one_sample(s.shape, keras.backend.standardize_dtype(s.dtype)),
        (*keras.utils.unpack_x_y_sample_weight(batch), outputs),
    )
    if model.loss is not None and not model._compile_loss.built:  # noqa: SLF001
        model._clear_losses()  # noqa: SLF001  (a layer's may be tensors of a step traced before)
        model.compute_loss(x, y, y_pred, sample_weight, training=False)
    model.compute_metrics(x, y, y_pred, sample_weight)
    model.reset_metrics()
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _one_sample(shape: Sequence[int | None], dtype: str) -> Data:
    return keras.ops.zeros([1, *(d or 1 for d in shape[1:])], dtype)
