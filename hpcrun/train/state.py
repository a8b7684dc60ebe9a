"""Synchronization of initial weights, moving statistics and metrics between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.optimizer import find_optimizers
from hpcrun.train.pipeline.absent import present
from hpcrun.train.ranks.collectives import allreduce, checked_allgather, checked_barrier
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.pipeline.pipeline import Pipeline
    from hpcrun.train.types import Keras

    Array = np.ndarray[Any, Any]


def set_jax_state(model: keras.Model, state: Keras) -> None:
    """Store the state that a training step returned in a JAX model, as Keras does at the end of an epoch."""
    names = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
    model._jax_state = dict(zip(names, state, strict=True))  # noqa: SLF001
    model._jax_state_synced = False  # noqa: SLF001
    model.jax_state_sync()


def broadcast(model: keras.Model) -> None:
    """Broadcast rank 0's weights and optimizer state to all ranks. Collective.

    Seeds of random layers are an exception: rank r gets rank 0's seed plus r, because with equal seeds, dropout would
    drop the same units on all ranks.

    Args:
        model: A Keras model or an `hpcrun.train.Model`.

    Raises:
        HpcrunError: Variables differ between ranks, or the model has no variables yet.
    """
    model = getattr(model, "keras_model", model)
    if not (broadcast_built_variables(model) or model.built):
        raise HpcrunError(
            "the model has no variables yet to broadcast",
            hint="build it first: give its first layer a keras.Input, or call it on a batch",
        )


def pipeline_of(model: keras.Model) -> Pipeline | None:
    """Return the pipeline of a model; None if each rank has the whole model."""
    return getattr(getattr(model, "training_state", None), "pipeline", None)


def broadcast_once(model: keras.Model) -> None:
    """Broadcast rank 0's weights and optimizer state, unless they were broadcast before. Collective."""
    if not model.training_state.weights_broadcast:
        broadcast(model)
        model.training_state.weights_broadcast = True


def broadcast_built_variables(model: keras.Model) -> bool:
    """Broadcast the existing variables, and return whether the model has variables. Collective.

    Args:
        model: A Keras model.

    Raises:
        HpcrunError: Variables differ between ranks.
    """
    this_rank = world()
    if this_rank.size == 1:
        return True
    if pipeline := pipeline_of(model):
        pipeline.broadcast()
        return True
    variables, optimizer_state = (
        model.variables,
        [v for optimizer in find_optimizers(model) for v in optimizer.variables],
    )
    local_specs = [(tuple(v.shape), v.dtype) for v in (*variables, *optimizer_state)]
    # Optimizer state may be nonzero: counters (iterations, loss scale steps), or ScheduleFreeAdamW's copies of weights.
    has_begun = any(_is_nonzero(v) for v in optimizer_state)
    checked_barrier()
    models_are_equal, have_begun = zip(
        *this_rank.comm.allgather((local_specs == this_rank.comm.bcast(local_specs), has_begun)), strict=True
    )
    if not all(models_are_equal):
        raise HpcrunError(
            f"the ranks' models differ: this rank's has {len(local_specs)} variables",
            hint="build and compile the same model on all ranks; only rank 0 prints and saves",
        )
    if any(have_begun):  # optimizer state is large, and equal on all ranks before the first step
        variables = [*variables, *optimizer_state]
    if not variables:
        return False
    values = [np.ascontiguousarray(keras.ops.convert_to_numpy(v.value)).reshape(-1) for v in variables]
    all_bytes = np.concatenate([value.view(np.uint8) for value in values])  # as bytes, because MPI has no bfloat16
    this_rank.comm.Bcast(all_bytes)
    end_offsets = np.cumsum([value.nbytes for value in values])
    for variable, value, bytes_of_variable in zip(
        variables, values, np.split(all_bytes, end_offsets[:-1]), strict=True
    ):
        value_of_rank_0 = bytes_of_variable.view(value.dtype).reshape(variable.shape)
        if variable.name == "seed_generator_state":
            value_of_rank_0 = value_of_rank_0 + np.array([this_rank.rank, 0], value_of_rank_0.dtype)
        variable.assign(value_of_rank_0)
    if keras.backend.backend() == "torch":  # on PyTorch, dropout uses PyTorch's random generator
        import torch

        torch.manual_seed(this_rank.comm.bcast(int(torch.randint(2**31, ()))) + this_rank.rank)
    return True


def _is_nonzero(variable: keras.Variable) -> bool:
    """Return whether an optimizer's variable is nonzero, and therefore may differ between ranks."""
    if variable.shape == () and "int" not in variable.dtype:  # a learning rate, which is compared separately
        return False
    return bool(keras.ops.any(keras.ops.not_equal(variable.value, 0)))


def average_moving_statistics(model: keras.Model) -> None:
    """Average the moving statistics of batch normalization over the ranks.

    Args:
        model: A Keras model. All non-trainable float variables are averaged. Variables that are equal on all ranks
            (frozen weights) do not change, because the mean of equal float32 values is exact in float64.
    """
    float_variables = [v for v in model.non_trainable_variables if "float" in v.dtype]
    if pipeline := pipeline_of(model):
        pipeline.average_over_replicas(float_variables)
        return
    _update_together(float_variables, lambda local: allreduce(local) / world().size)


def check_same_weights(model: keras.Model) -> None:
    """Raise an error if weights differ between ranks. Collective.

    For speed, only the sums of the weights and of their squares are compared, with a tolerance of 1 % for rounding.

    Args:
        model: The model, after a training step.

    Raises:
        HpcrunError: The weights of a rank differ from those of rank 0.
    """
    if world().size == 1 or not model.trainable_variables:
        return
    pipeline = pipeline_of(model)
    stages = pipeline.layout.stages if pipeline else 1
    values = [keras.ops.cast(v.value, "float32") for v in present(model.trainable_variables)]
    sums = [keras.ops.stack([keras.ops.sum(v), keras.ops.sum(v * v)]) for v in values]
    local_sums = keras.ops.convert_to_numpy(keras.ops.stack(sums)) if sums else np.zeros((0, 2))
    gathered_sums = checked_allgather("the comparison of weights", local_sums)
    for rank, sums_of_rank in enumerate(gathered_sums):
        first_rank = rank % stages  # the first replica's rank with the same weights
        norms = np.sqrt(gathered_sums[first_rank][:, 1])
        differs = np.abs(sums_of_rank[:, 0] - gathered_sums[first_rank][:, 0]) > 0.01 * norms
        differs |= np.abs(np.sqrt(sums_of_rank[:, 1]) - norms) > 0.01 * norms
        if differs.any():
            name = f"stage {first_rank}" if pipeline else model.trainable_variables[differs.argmax()].path
            raise HpcrunError(
                f"the weights of rank {rank} are not those of rank {first_rank}: {name}",
                hint="build all layers before fit, or seed them (keras.utils.set_random_seed); change weights only "
                "with the model's optimizers; callbacks must use the logs of epochs, not of batches",
            )


def sum_metrics(model: keras.Model) -> None:
    """Sum the state of the metrics over the ranks, so that metrics cover all samples. Collective.

    Args:
        model: A compiled model whose metrics are built.
    """
    _update_together(model.metrics_variables, allreduce)


def sum_metrics_over_stages(model: keras.Model) -> None:
    """Sum the state of the metrics over the stages of this replica, of which the last one has counted."""
    if pipeline := pipeline_of(model):
        _update_together(model.metrics_variables, pipeline.sum_over_pipeline)


def _update_together(variables: Sequence[keras.Variable], combine: Callable[[Array], Array]) -> None:
    if world().size == 1 or not variables:
        return
    values = [keras.ops.convert_to_numpy(v.value) for v in variables]
    combined_values = combine(np.concatenate([value.reshape(-1).astype(np.float64) for value in values]))
    end_offsets = np.cumsum([value.size for value in values])
    for variable, value, values_of_variable in zip(
        variables, values, np.split(combined_values, end_offsets[:-1]), strict=True
    ):
        variable.assign(values_of_variable.reshape(value.shape).astype(value.dtype))
