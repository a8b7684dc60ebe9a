"""State that all ranks share besides gradients: initial weights, moving statistics, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.optimizer import find_optimizers
from hpcrun.train.ranks.collectives import allreduce, checked_allgather, checked_barrier
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.types import Keras

    Array = np.ndarray[Any, Any]


def set_jax_state(model: keras.Model, state: Keras) -> None:
    """Set the state that a training step returned on a JAX model; Keras does so only at the end of an epoch."""
    names = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
    model._jax_state = dict(zip(names, state, strict=True))  # noqa: SLF001
    model._jax_state_synced = False  # noqa: SLF001
    model.jax_state_sync()


def broadcast(model: keras.Model) -> None:
    """Broadcast rank 0's weights and optimizer state to all ranks; all ranks must call this.

    Random layers are an exception: rank r continues from rank 0's seed plus r, because equal seeds would drop the same
    units.

    Args:
        model: A Keras model or an `hpcrun.train.Model`.

    Raises:
        HpcrunError: The ranks' models differ in their variables, or have no variables yet.
    """
    model = getattr(model, "keras_model", model)
    if not (broadcast_built_variables(model) or model.built):
        raise HpcrunError(
            "the model has no variables yet to broadcast",
            hint="build it first: give its first layer a keras.Input, or call it on a batch",
        )


def broadcast_built_variables(model: keras.Model) -> bool:
    """Broadcast the variables that exist, and return whether there are any; all ranks must call this.

    Args:
        model: A Keras model.

    Raises:
        HpcrunError: The ranks' models differ in their variables.
    """
    me = world()
    if me.size == 1:
        return True
    variables, state = model.variables, [v for optimizer in find_optimizers(model) for v in optimizer.variables]
    local = [(tuple(v.shape), v.dtype) for v in (*variables, *state)]
    # Counters (iterations, loss scale steps), or the copies of weights that ScheduleFreeAdamW begins with.
    begun = any(_has_begun(v) for v in state)
    checked_barrier()
    equal, have_stepped = zip(*me.comm.allgather((local == me.comm.bcast(local), begun)), strict=True)
    if not all(equal):
        raise HpcrunError(
            f"the ranks' models differ: this rank's has {len(local)} variables",
            hint="build and compile the same model on all ranks; only rank 0 prints and saves",
        )
    if any(have_stepped):  # at least as large as the weights, and equal before the first step
        variables = [*variables, *state]
    if not variables:
        return False
    values = [np.ascontiguousarray(keras.ops.convert_to_numpy(v.value)).reshape(-1) for v in variables]
    everything = np.concatenate([value.view(np.uint8) for value in values])  # bytes: MPI has no bfloat16
    me.comm.Bcast(everything)
    ends = np.cumsum([value.nbytes for value in values])
    for variable, value, part in zip(variables, values, np.split(everything, ends[:-1]), strict=True):
        new = part.view(value.dtype).reshape(variable.shape)
        if variable.name == "seed_generator_state":
            new = new + np.array([me.rank, 0], new.dtype)
        variable.assign(new)
    if keras.backend.backend() == "torch":  # dropout uses PyTorch's generator
        import torch

        torch.manual_seed(me.comm.bcast(int(torch.randint(2**31, ()))) + me.rank)
    return True


def _has_begun(variable: keras.Variable) -> bool:
    """Return whether an optimizer's variable may differ between ranks that start from different weights."""
    if variable.shape == () and "int" not in variable.dtype:  # learning rates, which are compared
        return False
    return bool(keras.ops.any(keras.ops.not_equal(variable.value, 0)))


def average_moving_statistics(model: keras.Model) -> None:
    """Average the moving statistics of batch normalization over the ranks.

    Args:
        model: A Keras model. All non-trainable floats are averaged; those that are equal on all ranks (frozen weights)
            keep their bits, because a sum of equal float32 values is exact in float64.
    """
    means = [v for v in model.non_trainable_variables if "float" in v.dtype]
    _update_together(means, lambda local: allreduce(local) / world().size)


def check_same_weights(model: keras.Model) -> None:
    """Refuse weights that differ from those of rank 0.

    Sums are compared, which is fast, with a tolerance of 1 %: processors round differently.

    Args:
        model: The model after a step; every rank must call this.

    Raises:
        HpcrunError: The weights differ.
    """
    if world().size == 1 or not model.trainable_variables:
        return
    values = [keras.ops.cast(v.value, "float32") for v in model.trainable_variables]
    sums = keras.ops.stack([keras.ops.stack([keras.ops.sum(v), keras.ops.sum(v * v)]) for v in values])
    gathered = checked_allgather("the comparison of weights", keras.ops.convert_to_numpy(sums))
    sizes = np.sqrt(gathered[0][:, 1])
    for rank, sums_of_rank in enumerate(gathered):
        differs = np.abs(sums_of_rank[:, 0] - gathered[0][:, 0]) > 0.01 * sizes
        differs |= np.abs(np.sqrt(sums_of_rank[:, 1]) - sizes) > 0.01 * sizes
        if differs.any():
            path = model.trainable_variables[differs.argmax()].path
            raise HpcrunError(
                f"the weights of rank {rank} are not those of rank 0: {path}",
                hint="build all layers before fit, or seed them (keras.utils.set_random_seed); change weights only by "
                "the model's optimizers, and let callbacks decide by an epoch's logs, not a batch's",
            )


def sum_metrics(model: keras.Model) -> None:
    """Sum the state of the metrics over the ranks, so that they cover all samples.

    Args:
        model: A compiled model whose metrics are built.
    """
    _update_together(model.metrics_variables, allreduce)


def _update_together(variables: Sequence[keras.Variable], function: Callable[[Array], Array]) -> None:
    if world().size == 1 or not variables:
        return
    values = [keras.ops.convert_to_numpy(v.value) for v in variables]
    combined = function(np.concatenate([value.reshape(-1).astype(np.float64) for value in values]))
    ends = np.cumsum([value.size for value in values])
    for variable, value, part in zip(variables, values, np.split(combined, ends[:-1]), strict=True):
        variable.assign(part.reshape(value.shape).astype(value.dtype))
