"""Models and settings that pipeline stages do not support."""

from __future__ import annotations

import operator

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.pipeline.graph import functional_of
from hpcrun.train.pipeline.hidden_state import find_hidden_state
from hpcrun.train.pipeline.schedule import SCHEDULES

_METHODS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")
_OPTIMIZERS = ("MultiOptimizer", "ScheduleFreeAdamW")


def whole_number(name: str, value: object, hint: str, *, minimum: int = 1) -> int:
    """Return a whole number, also one of NumPy.

    Args:
        name: The name of the argument.
        value: Its value.
        hint: What to do if it is wrong.
        minimum: The smallest number that is allowed.

    Raises:
        HpcrunError: The value is not a whole number, or too small.
    """
    try:
        number = minimum - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = minimum - 1
    if number < minimum:
        raise HpcrunError(f"{name}={value!r}", hint=hint)
    return number


def check_settings(stages: int, micro_batches: int | None, schedule: str, *, recompute: bool) -> int:
    """Return the number of micro-batches, by default twice the number of stages.

    Raises:
        HpcrunError: The number of micro-batches is not positive, the schedule is unknown, or `recompute` is no bool.
    """
    if schedule not in SCHEDULES:
        raise HpcrunError(f"schedule={schedule!r}", hint=f"one of {', '.join(SCHEDULES)}")
    if not isinstance(recompute, bool):
        raise HpcrunError(f"recompute={recompute!r}", hint="True or False")
    if micro_batches is None:
        return 2 * stages
    return whole_number("micro_batches", micro_batches, "give a whole number, several times the number of stages")


def check_pipeline_model(model: keras.Model) -> None:
    """Raise an error for models that cannot be computed in stages of micro-batches.

    Raises:
        HpcrunError: The backend is not TensorFlow, or the model has steps or layers that need the whole model or batch.
    """
    if (backend := keras.backend.backend()) != "tensorflow":
        raise HpcrunError(
            f"pipeline stages need TensorFlow, and Keras uses {backend}",
            hint="set KERAS_BACKEND=tensorflow, or leave out stages",
        )
    for name in _METHODS:
        method = getattr(model, name)
        method = getattr(method, "inner", method)
        if getattr(method, "__func__", method) is not getattr(keras.Model, name):
            raise HpcrunError(
                f"{type(model).__name__} defines its own {name}(), which needs the whole model on one rank",
                hint="leave it out, or leave out stages",
            )
    if functional_of(model) is None:
        return  # `trace_model` names the reason
    for layer in model._flatten_layers(include_self=False):  # noqa: SLF001
        if isinstance(layer, keras.layers.Lambda) and (state := find_hidden_state((layer.function, layer.arguments))):
            raise HpcrunError(
                f"the Lambda layer {layer.name!r} uses {state}, which no stage would train",
                hint="write a keras.layers.Layer that has it as an attribute",
            )
        if getattr(layer, "synchronized", False) is True or type(layer).__name__ == "SyncBatchNormalization":
            raise HpcrunError(
                f"the layer {layer.name!r} needs the statistics of the whole batch, and stages compute micro-batches",
                hint="use keras.layers.BatchNormalization without synchronized=True, or a LayerNormalization or "
                "GroupNormalization",
            )


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raise an error for optimizers that need all weights on one rank.

    Raises:
        HpcrunError: The optimizer averages weights, accumulates gradients itself, or has state made from all weights.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.use_ema:
        raise HpcrunError(
            f"the optimizer {type(inner).__name__} has use_ema=True, which pipeline stages do not support",
            hint="leave out use_ema and hpcrun.train.average_weights",
        )
    if inner.gradient_accumulation_steps:
        raise HpcrunError(
            f"the optimizer {type(inner).__name__} has gradient_accumulation_steps={inner.gradient_accumulation_steps}",
            hint="give larger batches and more micro_batches, which accumulate gradients",
        )
    if type(inner).__name__ in _OPTIMIZERS:
        raise HpcrunError(
            f"pipeline stages do not support the optimizer {type(inner).__name__}",
            hint="use another one, such as keras.optimizers.AdamW",
        )
