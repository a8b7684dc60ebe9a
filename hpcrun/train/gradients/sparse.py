"""Sparse gradients: the rows of an embedding that a batch looks up, gathered from all ranks.

Keras's optimizers apply the rows of a `tf.IndexedSlices` one by one: two rows with equal indices are squared and
clipped separately, not as a sum. So rows are not summed over the ranks: each optimizer gets the rows of all ranks, as
in one process with the whole batch. Rows that are looked up once per batch (`EmbeddingLookups`) are summed, as in one
process. Only rows that were looked up are sent, not the whole embedding.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcrun.run.job import print_line
from hpcrun.run.waiting import waiting
from hpcrun.train.backends import call_on_host
from hpcrun.train.gradients.embedding_lookups import EmbeddingLookups, split_lookups
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import read_switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Comm, Data

    Array = np.ndarray[Any, Any]

_warned: list[object] = []


def is_sparse(gradient: Data) -> bool:
    """Return whether to treat a gradient as sparse, that is, as `tf.IndexedSlices` or `EmbeddingLookups`.

    With ``HPCRUN_SPARSE_AS_DENSE=1``, no gradient is treated as sparse.

    Raises:
        HpcrunError: The variable is neither 1 nor 0.
    """
    if keras.backend.backend() != "tensorflow" or read_switch("HPCRUN_SPARSE_AS_DENSE", default=False):
        return False
    import tensorflow as tf

    return isinstance(gradient, tf.IndexedSlices | EmbeddingLookups)


def to_dense(gradient: Data) -> Data:
    """Return a gradient as a tensor that is not sparse."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
    return keras.ops.convert_to_tensor(gradient, sparse=False)


def warn_about_dense_rows(optimizer: keras.optimizers.Optimizer, gradients: Sequence[Data]) -> None:
    """Warn once if ``HPCRUN_SPARSE_AS_DENSE=1`` leads to different weights than one process.

    Args:
        optimizer: The optimizer of the gradients.
        gradients: One gradient per variable, from `tf.GradientTape`.
    """
    if keras.backend.backend() != "tensorflow" or not read_switch("HPCRUN_SPARSE_AS_DENSE", default=False):
        return
    import tensorflow as tf

    inner_optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    kind = type(inner_optimizer)
    if kind in _warned or _is_linear(inner_optimizer) or not any(isinstance(g, tf.IndexedSlices) for g in gradients):
        return
    _warned.append(kind)
    if world().rank == 0:
        print_line(
            f"WARNING: HPCRUN_SPARSE_AS_DENSE=1 adds up the rows of an embedding before {kind.__name__} squares or "
            "clips them one by one: the weights will differ from those of one process; unset it to avoid that"
        )


def _is_linear(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether an optimizer gets equal weights from separate gradient rows and from their sum."""
    if optimizer.gradient_accumulation_steps:  # with gradient accumulation, Keras sums the rows
        return True
    clips = optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue
    return type(optimizer) in {keras.optimizers.SGD, keras.optimizers.Lion} and not clips


def gather_rows(comm: Comm, gradients: Sequence[Data], share: Data, keepalive: list[Any]) -> list[Data]:
    """Gather the rows of the whole batch, weighted by each rank's share of the batch. Collective.

    Args:
        comm: The MPI communicator of the participating ranks.
        gradients: `tf.IndexedSlices` or `EmbeddingLookups`, the same number on all ranks.
        share: This rank's share of the batch; a rank with share 0 sends no rows.
        keepalive: See the parameter of `call_on_host`.

    Returns:
        `tf.IndexedSlices` of the same dtypes, in rank order.
    """
    import tensorflow as tf

    lookups = [g if isinstance(g, EmbeddingLookups) else split_lookups(g) for g in gradients]
    slices = [one for lookup in lookups for one in lookup.slices]
    tensors = [t for one in slices for t in (one.indices, tf.cast(one.values, _wire_dtype(one.values.dtype)))]
    shapes = [[None, *t.shape[1:]] for t in tensors]
    if tf.executing_eagerly():
        _warn_if_eager(comm, slices)
    gather = partial(_gather, comm, [once_per_batch for lookup in lookups for once_per_batch in lookup.once_per_batch])
    gathered_arrays = iter(call_on_host(gather, [share, *tensors], shapes, [t.dtype.name for t in tensors], keepalive))
    rows = []
    for lookup in lookups:
        indices, values = zip(*((next(gathered_arrays), next(gathered_arrays)) for _ in lookup.slices), strict=True)
        first_slices = lookup.slices[0]
        joined_slices = (indices[0], values[0]) if len(indices) == 1 else (tf.concat(indices, 0), tf.concat(values, 0))
        rows.append(
            tf.IndexedSlices(
                tf.cast(joined_slices[1], first_slices.values.dtype), joined_slices[0], first_slices.dense_shape
            )
        )
    return rows


def _warn_if_eager(comm: Comm, slices: Sequence[Data]) -> None:
    """Warn once if all ranks looked up equal rows, as for positions. Collective."""
    if comm in _warned:
        return
    local_indices = [one.indices.numpy().tobytes() for one in slices]
    if any(
        len({*indices_of_ranks}) == 1 and len(indices_of_ranks[0]) > 8
        for indices_of_ranks in zip(*comm.allgather(local_indices), strict=True)
    ):
        _warned.append(comm)
        if world().rank == 0:
            print_line(
                "WARNING: all ranks looked up the same rows of an embedding. Eagerly it is unknown whether one process "
                "would add them up, as for positions: leave run_eagerly=True out to get its weights"
            )


def _wire_dtype(dtype: Data) -> str:
    return "float64" if dtype == "float64" else "float32"  # MPI has no bfloat16


def _gather(comm: Comm, once_per_batch: Sequence[bool], share: Array, *arrays: Array) -> list[Array]:
    with waiting("the sparse gradients"):
        local_counts = [len(array) if share > 0 else 0 for array in arrays]
        counts = np.array(comm.allgather(local_counts))  # (ranks, arrays)
        gathered_arrays = []
        for array, rows in zip(arrays, counts.T, strict=True):
            rows_to_send = array[: rows[comm.rank]]
            contiguous_rows = np.ascontiguousarray(
                rows_to_send if rows_to_send.dtype.kind == "i" else rows_to_send * rows_to_send.dtype.type(share)
            )
            gathered_rows = np.empty((rows.sum(), *array.shape[1:]), array.dtype)
            comm.Allgatherv(contiguous_rows, [gathered_rows, rows * math.prod(array.shape[1:])])
            gathered_arrays.append(gathered_rows)
    for number, rows in enumerate(counts.T[::2]):
        if once_per_batch[number]:
            indices, values = gathered_arrays[2 * number : 2 * number + 2]
            gathered_arrays[2 * number : 2 * number + 2] = _sum_rows(indices, values, rows)
    return gathered_arrays


def _sum_rows(indices: Array, values: Array, rows: Array) -> tuple[Array, Array]:
    """Sum the rows of lookups that happen once per batch, as one process does.

    Args:
        indices: Indices of the rows of all ranks, shape (n,).
        values: Values of the rows of all ranks, shape (n, ...).
        rows: Number of rows of each rank; 0 for ranks without samples.
    """
    row_counts = rows[rows > 0]
    indices_of_ranks = np.split(indices, np.cumsum(row_counts)[:-1])
    longest_indices = max(indices_of_ranks, key=len)
    if any((each != longest_indices[: len(each)]).any() for each in indices_of_ranks):
        return indices, values  # the rows were looked up per sample
    total = np.zeros((len(longest_indices), *values.shape[1:]), values.dtype)
    for summand in np.split(values, np.cumsum(row_counts)[:-1]):
        total[: len(summand)] += summand  # a single process would have padded the shorter sequences
    return longest_indices, total
