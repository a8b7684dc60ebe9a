"""Sparse gradients: the rows of an embedding that a batch looks up, gathered from all ranks as they are.

Keras's optimizers take the rows of a `tf.IndexedSlices` one by one: one that is looked up twice is squared and clipped
twice, not as a sum. So the ranks do not add rows up; each one's optimizer sees all rows, as that of one process would
for the whole batch. As many rows travel as all samples look up, instead of the whole table: for large tables less.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcrun.train.backends import on_host
from hpcrun.train.ranks.waiting import waiting
from hpcrun.train.settings import switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.kinds import Comm, Data

    Array = np.ndarray[Any, Any]


def is_sparse(gradient: Data) -> bool:
    """Return whether a gradient is a `tf.IndexedSlices`, and to stay one; with ``HPCRUN_SPARSE_AS_DENSE=1`` none is.

    Raises:
        HpcrunError: The variable is neither 1 nor 0.
    """
    if keras.backend.backend() != "tensorflow" or switch("HPCRUN_SPARSE_AS_DENSE", default=False):
        return False
    import tensorflow as tf

    return isinstance(gradient, tf.IndexedSlices)


def rows_of_all(comm: Comm, gradients: Sequence[Data], share: Data, keep: list[Any]) -> list[Data]:
    """Return all ranks' rows, each rank's weighted by its share of the batch.

    Args:
        comm: An MPI communicator of the ranks that take part; all of them must call this, with as many gradients.
        gradients: `tf.IndexedSlices` each.
        share: This rank's weight; the rows of a rank with 0 are left out.
        keep: As for `on_host`.

    Returns:
        `tf.IndexedSlices` of the same dtypes, rank after rank.
    """
    import tensorflow as tf

    tensors = [t for g in gradients for t in (g.indices, tf.cast(g.values, _wire(g.values.dtype)))]
    shapes = [[None, *t.shape[1:]] for t in tensors]
    found = iter(on_host(partial(_gather, comm), [share, *tensors], shapes, [t.dtype.name for t in tensors], keep))
    return [
        tf.IndexedSlices(indices=next(found), values=tf.cast(next(found), g.values.dtype), dense_shape=g.dense_shape)
        for g in gradients
    ]


def _wire(dtype: Data) -> str:
    return "float64" if dtype == "float64" else "float32"  # MPI has no bfloat16


def _gather(comm: Comm, share: Array, *arrays: Array) -> list[Array]:
    with waiting("the sparse gradients"):
        mine = [len(array) if share > 0 else 0 for array in arrays]
        counts = np.array(comm.allgather(mine))  # (ranks, arrays)
        found = []
        for array, rows in zip(arrays, counts.T, strict=True):
            here = array[: rows[comm.rank]]
            packed = np.ascontiguousarray(here if here.dtype.kind == "i" else here * here.dtype.type(share))
            everybody = np.empty((rows.sum(), *array.shape[1:]), array.dtype)
            comm.Allgatherv(packed, [everybody, rows * math.prod(array.shape[1:])])
            found.append(everybody)
    return found
