"""Models and settings that pipeline stages do not support."""

from __future__ import annotations

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.pipeline.graph import functional_of
from hpcrun.train.pipeline.hidden_state import find_hidden_state
from hpcrun.train.pipeline.schedule import SCHEDULES

_METHODS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")
_OPTIMIZERS = ("MultiOptimizer", "ScheduleFreeAdamW")


def check_settings(micro_batches: int, schedule: str) -> None:
    """Raise an error for wrong settings of a pipeline.

    Raises:
        HpcrunError: The number of micro-batches is not positive, or the schedule is unknown.
    """
    if not isinstance(micro_batches, int) or micro_batches < 1:
        raise HpcrunError(
            f"micro_batches={micro_batches!r}", hint="give a whole number, several times the number of stages"
        )
    if schedule not in SCHEDULES:
        raise HpcrunError(f"schedule={schedule!r}", hint=f"one of {', '.join(SCHEDULES)}")


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
