"""Callback that stops the training at the first NaN or infinite loss, and names the step and the layer."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.backends import is_computed
from hpcrun.train.outputs.step_log import StepCounter
from hpcrun.train.pipeline.absent import present

if TYPE_CHECKING:
    from hpcrun.train.types import Data, Keras, Logs

_SMALLER_STEPS = "lower the learning rate or warm it up, or clip gradients (global_clipnorm=1.0 of the optimizer)"

_MAX_UNREAD_STEPS = 4  # maximum number of steps whose losses JAX has not computed


class _UnreadStep(NamedTuple):
    """A step whose loss has not been read yet; `description` is the step number as text."""

    description: str
    loss: Data
    batch: Data


class StopAtNaN(StepCounter):
    """Callback for all ranks that ends the training at the first loss that is NaN or infinite.

    A step with a NaN or infinite loss makes all weights NaN. Each step therefore begins with a copy of the weights
    (except on JAX, which reuses their memory, and with pipeline stages). From the copied weights, the callback computes
    the outputs of all layers for the batch of the step, and names the first layer whose output is not finite.

    Reading a loss waits for its step. On JAX, which computes steps while Python prepares later steps, the loss is read
    as soon as it is computed, a few steps later.
    """

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Let each step copy the weights."""
        model, self._unread_steps = self.model, deque[_UnreadStep]()
        if model.training_state.weights_before or model.training_state.pipeline or keras.backend.backend() == "jax":
            return
        model.training_state.weights_before = [
            keras.Variable(keras.ops.copy(variable.value), trainable=False, dtype=variable.dtype)
            for variable in model.variables
        ]
        model.make_train_function(force=True)  # replace a train function that was traced without copying the weights

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Check the loss: the mean on this rank since the epoch began, which stays NaN after a batch with NaN."""
        super().on_train_batch_end(batch, logs)
        description = f"step {batch + 1} of epoch {self._epoch}"
        if self.steps_before:
            description += f" (step {self._step} of the training)"
        self._unread_steps.append(
            _UnreadStep(description, (logs or {}).get("loss", 0.0), self._model.training_state.last_batch)
        )
        while self._unread_steps and (
            is_computed(self._unread_steps[0].loss) or len(self._unread_steps) > _MAX_UNREAD_STEPS
        ):
            self._check(self._unread_steps.popleft())

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Check the remaining losses, before the epoch's model is saved."""
        while self._unread_steps:
            self._check(self._unread_steps.popleft())
        super().on_epoch_end(epoch, logs)

    def _check(self, step: _UnreadStep) -> None:
        if math.isfinite(loss := float(step.loss)):
            return
        cause, hint = self._find_cause(step.batch)
        raise HpcrunError(f"the loss is {loss} at {step.description}: {cause}", hint=hint, exit_code=1)

    def _find_cause(self, batch: Data) -> tuple[str, str]:
        model, saved_weights = self.model, self._model.training_state.weights_before
        if batch is None:
            return _first_bad_weights(model), _SMALLER_STEPS
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(getattr(batch, "data", batch))
        for name, value in {"inputs": x, "targets": y, "sample weights": sample_weight}.items():
            if not all(_is_finite(tensor) for tensor in keras.tree.flatten(value)):
                return f"the {name} of this batch are not finite", "check the data"
        # the numbers of variables differ if a custom step has built layers, or on JAX, where no weights are copied
        if len(saved_weights) != len(model.variables):
            return _first_bad_weights(model), _SMALLER_STEPS
        for variable, copy in zip(model.variables, saved_weights, strict=True):
            variable.assign(copy.value)
        try:
            layer = first_bad_layer(model, x)
        except Exception:  # noqa: BLE001  (an error here must not hide the NaN)
            return _first_bad_weights(model), _SMALLER_STEPS
        if layer:
            return f"the first output that is not finite is that of layer {layer}", _SMALLER_STEPS
        return (
            "the outputs of all layers are finite, but not the loss",
            f"check the loss, for example for log(0) and division by 0; {_SMALLER_STEPS}",
        )


def first_bad_layer(model: keras.Model, x: Data) -> str | None:
    """Return the name of the first layer whose output is not finite; None if all are finite.

    Args:
        model: A functional or sequential model, with the weights to test.
        x: A batch of inputs of the model.
    """
    outputs: list[tuple[keras.Layer, Keras]] = []
    for layer in model.layers:
        output_tensors = keras.tree.flatten(layer.output)
        outputs += [
            (layer, tensor) for tensor in output_tensors if "float" in keras.backend.standardize_dtype(tensor.dtype)
        ]
    sums = [keras.ops.sum(keras.ops.absolute(keras.ops.cast(tensor, "float32"))) for _, tensor in outputs]
    values = _call(keras.Model(model.inputs, sums), x)
    bad_layer = next((layer for (layer, _), value in zip(outputs, values, strict=True) if not _is_finite(value)), None)
    if bad_layer is None:
        return None
    if isinstance(bad_layer, keras.Model):  # search the nested model
        inner_bad_layer = first_bad_layer(bad_layer, _call(keras.Model(model.inputs, bad_layer.input), x))
        return f"{bad_layer.name}/{inner_bad_layer}" if inner_bad_layer else str(bad_layer.name)
    return str(bad_layer.name)


def _call(probe: keras.Model, x: Data) -> Any:
    """Call a model in training mode; compiled on TensorFlow, to free the outputs of layers early."""
    if keras.backend.backend() != "tensorflow":
        return probe(x, training=True)
    import tensorflow as tf

    return tf.function(probe, autograph=False)(x, training=True)


def _first_bad_weights(model: keras.Model) -> str:
    bad_paths = [v.path for v in present(model.variables) if not _is_finite(v.value)]
    if not bad_paths:
        return "all weights are finite"
    return f"{len(bad_paths)} of {len(model.variables)} weights are not finite, first {bad_paths[0]}"


def _is_finite(tensor: Data) -> bool:
    if tensor is None or "float" not in keras.backend.standardize_dtype(tensor.dtype):
        return True
    return bool(keras.ops.all(keras.ops.isfinite(keras.ops.cast(tensor, "float32"))))
