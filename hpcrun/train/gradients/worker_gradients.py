"""Optimizer steps with the gradients of the virtual workers of a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.backends import call_on_host
from hpcrun.train.gradients.embedding_lookups import EmbeddingLookups
from hpcrun.train.gradients.optimizer import paths_of
from hpcrun.train.gradients.sparse import to_dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from hpcrun.train.gradients.optimizer import CapturedStep
    from hpcrun.train.gradients.virtual_workers import VirtualReducer
    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]


def to_one_tensor(gradient: Data) -> Data:
    """Return a captured gradient as a tensor that is not sparse."""
    if isinstance(gradient, EmbeddingLookups):
        return sum(to_dense(slices) for slices in gradient.slices)
    return to_dense(gradient)


def apply_worker_gradients(step: CapturedStep, gradients: Sequence[Sequence[Data]], samples: Data, batch: Data) -> None:
    """Take an optimizer step with the weighted sum of the gradients of all workers of all ranks. Collective.

    Args:
        step: A captured step, which gives the optimizer, its variables, and which of them have gradients.
        gradients: The gradients of each worker of this rank, one per variable that has a gradient.
        samples: The number of samples of each worker, (workers,), float32.
        batch: The number of samples of the batch over all ranks, a float32 scalar; 0 if this rank has no sample.
    """
    apply = step.optimizer.apply
    pairs = zip(paths_of(step.variables or ()), step.gradients, strict=False)
    paths = tuple(path for path, gradient in pairs if gradient is not None)
    sums = iter(_sum_over_workers(apply.reducer, gradients, samples, batch, paths) if gradients[0] else [])
    apply.original([None if gradient is None else next(sums) for gradient in step.gradients], step.variables)


def _sum_over_workers(
    reducer: VirtualReducer,
    gradients: Sequence[Sequence[Data]],
    samples: Data,
    batch: Data,
    paths: tuple[str, ...],
) -> list[Data]:
    dtypes = [keras.backend.standardize_dtype(gradient.dtype) for gradient in gradients[0]]
    dtype = "float64" if "float64" in dtypes else "float32"
    tensors = [keras.ops.cast(gradient, dtype) for of_worker in gradients for gradient in of_worker]
    shapes = [gradient.shape for gradient in gradients[0]]

    def reduce(samples: Array, batch: Array, *arrays: Array) -> list[Array]:
        return reducer.reduce_workers(arrays, samples, float(batch), paths)

    sums = call_on_host(reduce, [samples, batch, *tensors], shapes, dtype, reducer.keepalive)
    return [keras.ops.cast(total, own_dtype) for total, own_dtype in zip(sums, dtypes, strict=True)]
