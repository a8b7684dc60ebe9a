"""Optimizers that average gradients over the ranks before each step, with a `Reducer`.

Every step of Keras 3, also `apply_gradients` and `LossScaleOptimizer`, calls `apply` of the outermost optimizer. Only
the *instance's* method is wrapped, so that the optimizer's class, which saved models name, does not change.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.backends import call_on_host, without_autograph
from hpcrun.train.config_values import config_of, to_comparable
from hpcrun.train.data.batch_share import current_share
from hpcrun.train.gradients.embedding_lookups import split_lookups
from hpcrun.train.gradients.overlap import BUCKET_BYTES, group_gradients
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.gradients.sparse import gather_rows, is_sparse, to_dense, warn_about_dense_rows
from hpcrun.train.gradients.torch_reducer import TorchReducer
from hpcrun.train.gradients.unreduced_losses import warn_about_unreduced_loss, watch_gradient_tapes
from hpcrun.train.gradients.virtual_workers import VirtualReducer, count_workers, is_distributed
from hpcrun.train.normalization import synchronize_keras_layers
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.cuda_support import is_cuda_aware
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import is_overlap_enabled, keras_backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.train.types import Data, Keras

_captured_steps: list[list[CapturedStep]] = []


class CapturedStep(NamedTuple):
    """The arguments of a captured optimizer step.

    Attributes:
        optimizer: The optimizer.
        gradients: One per variable: a tensor, `EmbeddingLookups` if sparse, None if the loss does not depend on it.
        variables: The variables; None: all variables of the optimizer.
    """

    optimizer: keras.optimizers.Optimizer
    gradients: list[Data]
    variables: Sequence[keras.Variable] | None


def Optimizer(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:  # noqa: N802  (reads as a class)
    """Let an optimizer average its gradients over all ranks before each step, for custom training loops.

    All ranks have the same weight, so give each rank a batch of the same size. `hpcrun.train.Model` does not need this
    call. The first step raises an error if the optimizers differ between ranks, for example in the learning rate.

    Args:
        optimizer: The outermost optimizer (the `LossScaleOptimizer`, if there is one), changed in place.

    Returns:
        The same object.

    Raises:
        HpcrunError: A `LossScaleOptimizer` wraps an optimizer that already averages gradients (only with several
            ranks).
    """
    if is_distributed() and not get_reducer(optimizer):
        kind = type(optimizer).__name__
        config = {f"{key} of the optimizer {kind}": to_comparable(value) for key, value in config_of(optimizer).items()}
        _distribute(optimizer).values_to_compare = {"optimizer": kind} | config
    return optimizer


def _distribute(optimizer: keras.optimizers.Optimizer) -> Reducer:
    """Let an optimizer average its gradients unless it already does, and return its reducer."""
    if existing := get_reducer(optimizer):
        return existing
    synchronize_keras_layers()
    watch_gradient_tapes()
    _refuse_nested_averaging()
    reducer, original_apply, original_stateless_apply = _make_reducer(), optimizer.apply, optimizer.stateless_apply

    def apply(grads: Sequence[Data], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        warn_about_unreduced_loss(optimizer, trainable_variables)
        if _captured_steps:
            # Sparse gradients can be split only inside the graph that contains them.
            gradients = [split_lookups(g) if is_sparse(g) else g for g in grads]
            _captured_steps[-1].append(CapturedStep(optimizer, gradients, trainable_variables))
        else:
            warn_about_dense_rows(optimizer, grads)
            variables = (
                getattr(optimizer, "_trainable_variables", ()) if trainable_variables is None else (trainable_variables)
            )
            original_apply(average_gradients(reducer, grads, variables), trainable_variables)

    def stateless_apply(optimizer_variables: Data, grads: Sequence[Data], trainable_variables: Data) -> Data:
        return original_stateless_apply(optimizer_variables, average_gradients(reducer, grads), trainable_variables)

    optimizer.apply = without_autograph(apply)
    optimizer.apply.reducer, optimizer.apply.original = reducer, original_apply
    # on JAX, the outer optimizer does not call `apply` of the inner optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer.stateless_apply = stateless_apply
    return reducer


def _refuse_nested_averaging() -> None:
    """Let `LossScaleOptimizer` refuse an inner optimizer that averages gradients; a second call has no effect.

    A `LossScaleOptimizer` skips the inner step if gradients overflow; the other ranks would then wait for this rank.
    """
    loss_scale_class = keras.optimizers.LossScaleOptimizer
    original_init = loss_scale_class.__init__
    if hasattr(original_init, "refuses"):
        return

    @wraps(original_init)
    def checked_init(self: Keras, inner_optimizer: keras.optimizers.Optimizer, *args: Keras, **kwargs: Keras) -> None:
        if get_reducer(inner_optimizer):
            raise HpcrunError(
                "a LossScaleOptimizer got an optimizer that averages over the ranks already: the other ranks would "
                "not see that gradients of one rank overflow",
                hint="hpcrun.train.Optimizer goes outermost: hpcrun.train.Optimizer(LossScaleOptimizer(optimizer)); "
                "compile of an hpcrun.train.Model takes Keras's own optimizer, a new one for each model",
            )
        original_init(self, inner_optimizer, *args, **kwargs)

    checked_init.refuses = True  # type: ignore[attr-defined]
    loss_scale_class.__init__ = checked_init


def _make_reducer() -> Reducer:
    if (workers := count_workers()) > 1:
        return VirtualReducer(world().comm, workers)
    if is_cuda_aware() and keras_backend() == "torch":
        return TorchReducer(world().comm)
    return Reducer(world().comm, overlap=is_overlap_enabled())


def get_reducer(optimizer: keras.optimizers.Optimizer) -> Reducer | None:
    """Return the `Reducer` of an optimizer; None if it does not average gradients."""
    return getattr(getattr(optimizer, "apply", None), "reducer", None)


def find_optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the optimizers of a model and of its nested models, without duplicates.

    A model with a custom training step may have several optimizers, also in lists and dicts.
    """
    models = [model, *(layer for layer in model._flatten_layers(include_self=False) if isinstance(layer, keras.Model))]  # noqa: SLF001
    optimizers: dict[int, keras.optimizers.Optimizer] = {}
    for value in (value for item in models for value in vars(item).values()):
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        optimizers |= {id(item): item for item in values if isinstance(item, keras.optimizers.Optimizer)}
    return list(optimizers.values())


def distribute_optimizers(model: keras.Model) -> list[Reducer]:
    """Let all of a model's optimizers average their gradients over the ranks.

    Returns:
        The reducer of each optimizer, also of optimizers that take no steps.
    """
    return [_distribute(optimizer) for optimizer in find_optimizers(model)] if is_distributed() else []


@contextmanager
def capture_gradients() -> Iterator[list[CapturedStep]]:
    """Capture the gradients of optimizer steps inside the block, instead of taking the steps.

    Yields:
        A list with an entry for each captured step.
    """
    _captured_steps.append([])
    try:
        yield _captured_steps[-1]
    finally:
        _captured_steps.pop()


def is_capturing() -> bool:
    """Return whether gradients are being captured, because XLA compiles the current step."""
    return bool(_captured_steps)


def average_gradients(
    reducer: Reducer, gradients: Sequence[Data], variables: Sequence[keras.Variable] = ()
) -> list[Data]:
    """Return the mean gradients of all ranks, inside or outside a compiled step.

    Args:
        reducer: The reducer that sums over the ranks.
        gradients: One per variable: a tensor, `tf.IndexedSlices` if sparse, None if the loss does not depend on it.
        variables: The variables, if known: what codecs keep belongs to them.

    Returns:
        Tensors of the same shapes and dtypes; None for a gradient of None, and `tf.IndexedSlices` have the rows of all
        ranks.
    """
    if all(g is None for g in gradients):
        return list(gradients)
    if isinstance(reducer, VirtualReducer):
        raise HpcrunError(
            "--virtual-workers divides the batches of fit, and an optimizer step outside of fit has no batch",
            hint="train with fit of an hpcrun.train.Model, or leave out --virtual-workers",
        )
    if reducer.values_to_compare:  # raise the error outside the graph, because TensorFlow wraps errors inside
        values, reducer.values_to_compare = reducer.values_to_compare, {}
        require_agreement(values, "make the same optimizer on all ranks, with one learning rate")
    share = keras.ops.cast(1 / reducer.comm.size if current_share() is None else current_share(), "float32")
    sparse_gradients = [g for g in gradients if is_sparse(g)]
    dense_gradients = [g for g in gradients if g is not None and not is_sparse(g)]
    # Send dense gradients first, because their messages include the header.
    pairs = zip(paths_of(variables), gradients, strict=False)
    paths = [path for path, g in pairs if g is not None and not is_sparse(g)]
    sums = iter(_allreduce_dense(reducer, dense_gradients or [keras.ops.zeros(())], share, paths))
    rows = iter(gather_rows(reducer.comm, sparse_gradients, share, reducer.keepalive) if sparse_gradients else ())
    return [None if g is None else next(rows if is_sparse(g) else sums) for g in gradients]


def paths_of(variables: Sequence[Keras]) -> list[str]:
    """Return the paths of variables of Keras or TensorFlow."""
    return [getattr(variable, "path", None) or variable.name for variable in variables]


def _allreduce_dense(reducer: Reducer, gradients: Sequence[Data], share: Data, paths: Sequence[str]) -> list[Data]:
    dense_gradients = [to_dense(g) for g in gradients]
    dtypes = [keras.backend.standardize_dtype(g.dtype) for g in dense_gradients]
    dtype = "float64" if "float64" in dtypes else "float32"
    sizes = [math.prod(d or 1 for d in g.shape) * np.dtype(dtype).itemsize for g in dense_gradients]
    sums: list[Data] = [None] * len(dense_gradients)
    groups = group_gradients(sizes, BUCKET_BYTES) if reducer.overlap else [list(range(len(dense_gradients)))]
    for number, group in enumerate(groups):
        reduce = partial(_reduce, reducer, number, number == len(groups) - 1, tuple(paths[i] for i in group if paths))
        tensors = [share, *(keras.ops.cast(dense_gradients[i], dtype) for i in group)]
        shapes = [t.shape for t in tensors[1:]]
        totals = (
            reduce(*tensors) if reducer.on_device else call_on_host(reduce, tensors, shapes, dtype, reducer.keepalive)
        )
        for i, total in zip(group, totals, strict=True):
            sums[i] = keras.ops.cast(total, dtypes[i])
    return sums


def _reduce(
    reducer: Reducer, group: int, is_last_group: bool, paths: tuple[str, ...], share: Data, *arrays: Data
) -> list[Data]:
    return reducer(arrays, float(share), group, is_last_group, paths)
