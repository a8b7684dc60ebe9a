"""The hook: gradients pass through the `Reducer` on their way into the optimizer.

All of Keras 3 funnels through `apply` of the outermost optimizer (`apply_gradients` and `LossScaleOptimizer` included).
Wrapping that method on the *instance* leaves the optimizer's class the user's own, so a saved model names plain Adam.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np

from hpcrun.train.backends import on_host, unconverted
from hpcrun.train.data.shares import current
from hpcrun.train.gradients.cuda_aware import TorchReducer, handed_over
from hpcrun.train.gradients.overlap import BUCKET, grouped
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.gradients.slices import gathered, is_sparse
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import overlapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.train.kinds import Data

_caught: list[list[Caught]] = []


class Caught(NamedTuple):
    """A step that an optimizer was to take.

    Attributes:
        optimizer: Which.
        gradients: One a variable; None where the loss does not depend on it.
        variables: Which; None for all that the optimizer knows.
    """

    optimizer: keras.optimizers.Optimizer
    gradients: list[Data]
    variables: Sequence[keras.Variable] | None


def Optimizer(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:  # noqa: N802  (reads as a class)
    """Let an optimizer average its gradients over all ranks before each step; for custom training loops.

    All ranks count alike: give each rank a batch of the same size. `Model` needs no call of it.

    Args:
        optimizer: The outermost optimizer (the `LossScaleOptimizer`, where there is one). It is changed in place.

    Returns:
        The same object.
    """
    if world().size == 1 or reducer_of(optimizer):
        return optimizer
    reducer, step, stateless = _reducer(), optimizer.apply, optimizer.stateless_apply

    def apply(grads: Sequence[Data], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        if _caught:
            _caught[-1].append(Caught(optimizer, list(grads), trainable_variables))
        else:
            step(mean(reducer, grads), trainable_variables)

    def stateless_apply(optimizer_variables: Data, grads: Sequence[Data], trainable_variables: Data) -> Data:
        return stateless(optimizer_variables, mean(reducer, grads), trainable_variables)

    optimizer.apply = unconverted(apply)
    optimizer.apply.reducer = reducer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):  # on JAX it does not come through its apply
        optimizer.stateless_apply = stateless_apply
    return optimizer


def _reducer() -> Reducer:
    if handed_over():
        return TorchReducer(world().comm)
    return Reducer(world().comm, overlap=overlapping())


def reducer_of(optimizer: keras.optimizers.Optimizer) -> Reducer | None:
    """Return the `Reducer` that an optimizer's gradients pass through, or None."""
    return getattr(getattr(optimizer, "apply", None), "reducer", None)


def optimizers_of(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return a model's optimizers: one with a training step of its own may have several."""
    found = (value for value in vars(model).values() if isinstance(value, keras.optimizers.Optimizer))
    return list({id(optimizer): optimizer for optimizer in found}.values())


def distribute_optimizers(model: keras.Model) -> None:
    """Let all of a model's optimizers average their gradients."""
    for optimizer in optimizers_of(model):
        Optimizer(optimizer)


def reducers_of(model: keras.Model) -> list[Reducer]:
    """Return the reducers of a model's optimizers; not all of them need to take steps."""
    return [reducer for optimizer in optimizers_of(model) if (reducer := reducer_of(optimizer))]


@contextmanager
def catching() -> Iterator[list[Caught]]:
    """Take the gradients that reach an `Optimizer` inside the block, instead of a step.

    Yields:
        What they go to: an entry for each step.
    """
    _caught.append([])
    try:
        yield _caught[-1]
    finally:
        _caught.pop()


def caught() -> bool:
    """Return whether gradients are being caught: that is, whether XLA compiles what happens now."""
    return bool(_caught)


def mean(reducer: Reducer, gradients: Sequence[Data]) -> list[Data]:
    """Return everybody's mean gradients, inside a compiled step or outside.

    Args:
        reducer: What communicates.
        gradients: One tensor a variable; None where the loss does not depend on it; `tf.IndexedSlices` of embeddings.

    Returns:
        Tensors of the same shapes and dtypes; None stays None, and `tf.IndexedSlices` have the rows of all ranks.
    """
    sparse = [i for i, g in enumerate(gradients) if is_sparse(g)]
    dense = [i for i, g in enumerate(gradients) if g is not None and i not in sparse]
    if not dense and not sparse:
        return list(gradients)
    share = keras.ops.cast(1 / reducer.comm.size if current() is None else current(), "float32")
    found: list[Data] = [None] * len(gradients)
    tensors = [keras.ops.convert_to_tensor(gradients[i], sparse=False) for i in dense]
    for i, total in zip(dense, _sums(reducer, tensors or [keras.ops.zeros(())], share), strict=bool(dense)):
        found[i] = total
    if sparse:  # after what keeps the ranks in step
        rows = gathered(reducer.comm, [gradients[i] for i in sparse], share, reducer.kept)
        for i, total in zip(sparse, rows, strict=True):
            found[i] = total
    return found


def _sums(reducer: Reducer, dense: Sequence[Data], share: Data) -> list[Data]:
    dtypes = [keras.backend.standardize_dtype(g.dtype) for g in dense]
    wire = "float64" if "float64" in dtypes else "float32"
    sizes = [math.prod(d or 1 for d in g.shape) * np.dtype(wire).itemsize for g in dense]
    sums: list[Data] = [None] * len(dense)
    groups = grouped(sizes, BUCKET) if reducer.overlap else [list(range(len(dense)))]
    for number, group in enumerate(groups):
        reduce = partial(_reduce, reducer, number, number == len(groups) - 1)
        tensors = [share, *(keras.ops.cast(dense[i], wire) for i in group)]
        shapes = [t.shape for t in tensors[1:]]
        totals = reduce(*tensors) if reducer.on_device else on_host(reduce, tensors, shapes, wire, reducer.kept)
        for i, total in zip(group, totals, strict=True):
            sums[i] = keras.ops.cast(total, dtypes[i])
    return sums


def _reduce(reducer: Reducer, group: int, last: bool, share: Data, *arrays: Data) -> list[Data]:
    return reducer(arrays, float(share), group, last)
