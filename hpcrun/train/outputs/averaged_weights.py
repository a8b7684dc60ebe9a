"""Moving averages of the weights, which an optimizer with `use_ema=True` keeps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.train.types import Logs


def average_weights(optimizer: keras.optimizers.Optimizer, factor: float) -> keras.optimizers.Optimizer:
    """Let an optimizer keep moving averages of the weights, with a smaller factor in the first steps.

    After n steps, the factor is at most (1 + n) / (10 + n), as in TensorFlow's `ExponentialMovingAverage`. With Keras's
    constant factor of 0.9999, the averages of a short training are still its initial weights.

    Args:
        optimizer: A new optimizer, or the inner optimizer of a `LossScaleOptimizer`; changed in place (`use_ema=True`).
        factor: Factor of the average after many steps, such as 0.9999; 0: no averages.

    Returns:
        The same object.

    Raises:
        HpcrunError: The optimizer is already built, or the factor is not from 0 to below 1.
    """
    if not 0 <= factor < 1:
        raise HpcrunError(f"average_weights got the factor {factor}", hint="0 or more, and less than 1, such as 0.9999")
    if not factor:
        return optimizer
    if optimizer.built:
        raise HpcrunError("average_weights got an optimizer that is built", hint="call it before compile")
    optimizer.use_ema, optimizer.ema_momentum = True, factor

    def update(trainable_variables: Sequence[keras.Variable]) -> None:
        steps = keras.ops.cast(optimizer.iterations, "float32")
        current_factor = keras.ops.minimum(factor, (1 + steps) / (10 + steps)) * keras.ops.cast(steps > 0, "float32")
        averages = optimizer._model_variables_moving_average  # noqa: SLF001
        for variable, average in zip(trainable_variables, averages, strict=True):
            if average is not None:
                rounded_factor = keras.ops.cast(current_factor, variable.dtype)
                average.assign(rounded_factor * average.value + (1 - rounded_factor) * variable.value)

    optimizer._update_model_variables_moving_average = update  # noqa: SLF001
    return optimizer


@contextmanager
def averaged_weights(model: keras.Model) -> Iterator[None]:
    """Replace the weights of a model by their moving averages inside the block, and restore them exactly afterwards.

    The weights stay unchanged if the optimizer keeps no averages, and before the first step.
    `keras.callbacks.SwapEMAWeights` does not restore weights exactly: it adds and subtracts, which rounds.

    Args:
        model: A compiled model.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    averages = getattr(optimizer, "_model_variables_moving_average", None)
    if not getattr(optimizer, "use_ema", False) or not averages or int(optimizer.iterations) == 0:
        yield
        return
    pairs = [pair for pair in zip(optimizer._trainable_variables, averages, strict=True) if pair[1] is not None]  # noqa: SLF001
    weights = [keras.ops.copy(variable.value) for variable, _ in pairs]
    for variable, average in pairs:
        variable.assign(keras.ops.copy(average.value))  # a copy, because JAX deletes the arrays of a step
    try:
        yield
    finally:
        for (variable, _), value in zip(pairs, weights, strict=True):
            variable.assign(value)


class ValidateAveraged(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback for all ranks that validates the moving averages of the weights, which `SaveModels` saves."""

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Replace the weights by their averages."""
        self._block = averaged_weights(self.model)
        self._block.__enter__()

    def on_test_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Restore the weights."""
        self._block.__exit__(None, None, None)
