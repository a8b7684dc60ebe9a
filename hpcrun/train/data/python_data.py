"""Shards of batches in plain Python, for all Keras backends and for data other than `tf.data`."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from hpcrun.errors import HpcrunError
from hpcrun.train.data.checksums import Checksum, sample_indices
from hpcrun.train.data.shards import PredictShard, Shard, is_scalar, shard_indices
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]


class ShardStream(NamedTuple):
    """This rank's shards, epoch by epoch.

    Args:
        epoch: Function that yields the shards of an epoch, given the number of the epoch, from 0.
        steps: The number of shards in an epoch; None if unknown.
        spec: The structure of a shard, with a `keras.KerasTensor` for each array.
    """

    epoch: Callable[[int], Iterator[Shard | PredictShard]]
    steps: int | None
    spec: Data


def shard_arrays(data: tuple[Data, ...], batch_size: int, seed: int | None, *, distribute: bool = True) -> ShardStream:
    """Return a rank's shards of arrays.

    Args:
        data: (x,), (x, y) or (x, y, sample_weight), arrays of shape (samples, ...).
        batch_size: The global batch size.
        seed: Seed of the sample order, which changes every epoch; None: no shuffle.
        distribute: Whether to shard batches among the ranks; if not, each rank uses all of its batches.

    Raises:
        HpcrunError: The arrays are empty, or have different numbers of samples.
    """
    data = keras.tree.map_structure(_to_array, data)
    samples = count_samples(data)

    def epoch(epoch_number: int) -> Iterator[Shard]:
        order = epoch_order(samples, seed, epoch_number)
        for start in range(0, samples, batch_size):
            indices, share = shard_indices(min(batch_size, samples - start), distribute=distribute)
            shard_data = keras.tree.map_structure(lambda a, rows=order[start + indices]: a[rows], data)
            yield Shard(unpack_single(shard_data), share)

    spec = Shard(
        unpack_single(keras.tree.map_structure(lambda a: keras.KerasTensor((None, *a.shape[1:]), a.dtype), data)),
        _SHARE_SPEC,
    )
    return ShardStream(epoch, -(-samples // batch_size), spec)


def shard_batches(batches: Data, seed: int | None, *, distribute: bool = True, predict: bool = False) -> ShardStream:
    """Return a rank's shards of the batches of a `keras.utils.PyDataset`, a PyTorch DataLoader or a generator.

    Every rank creates whole batches, and uses its shard of each batch.

    Args:
        batches: Iterable of x, (x, y) or (x, y, sample_weight) of the global batch size, equal on all ranks.
        seed: Seed of the order of a PyDataset's batches; None: no shuffle.
        distribute: Whether to shard batches among the ranks; if not, each rank uses all of its batches.
        predict: Whether to return shards for `predict` (`PredictShard`).

    Raises:
        HpcrunError: There are no batches, or the ranks' batches differ.
    """
    epochs: Callable[[int], Iterator[Data]]
    if isinstance(batches, keras.utils.PyDataset):
        steps, epochs = batches.num_batches, partial(_py_dataset_epoch, batches, seed)
        first_batches = [batches[k] for k in range(min(steps or 2, 2))]
    elif hasattr(batches, "__len__"):
        steps, epochs = len(batches), _restart_each_epoch(batches)
        first_batches = list(islice(batches, 2))
    else:
        steps, first_batches = None, list(islice(batches, 2))
        epochs = _continue_across_epochs(first_batches, batches)
    if not first_batches:
        raise HpcrunError(f"the {type(batches).__name__} yields no batch", hint="give at least one batch")
    first_batches = [_to_tuple(batch) for batch in first_batches]
    if any(map(is_scalar, keras.tree.flatten(first_batches))):  # Keras also refuses scalars
        raise HpcrunError(
            f"the {type(batches).__name__} yields batches with a scalar, which has no axis of samples",
            hint="repeat it for every sample: np.full(len(x), number)",
        )
    if distribute and world().size > 1:
        checksums = [Checksum(leaf[sample_indices(len(leaf))]) for leaf in keras.tree.flatten(first_batches)]
        require_agreement(
            {"checksums of the first batches": checksums},
            f"seed the {type(batches).__name__} alike on all ranks, "
            "or let each rank keep its own batches: fit(..., distribute=False)",
        )

    def epoch(epoch_number: int) -> Iterator[Shard | PredictShard]:
        first_index = 0
        for batch in map(_to_tuple, epochs(epoch_number)):
            total = len(keras.tree.flatten(batch)[0])
            indices, share = shard_indices(total, distribute=distribute)
            checked_arrays = batch[:1] if predict else batch
            shard_data = unpack_single(keras.tree.map_structure(lambda a, rows=indices: a[rows], checked_arrays))
            if predict:
                yield PredictShard(shard_data, first_index + indices if share > 0 else np.full(1, -1))
                first_index += total
            else:
                yield Shard(shard_data, share)

    spec = unpack_single(
        keras.tree.map_structure(_common_spec, *(batch[:1] if predict else batch for batch in first_batches))
    )
    positions = keras.KerasTensor((None,), "int64")
    return ShardStream(epoch, steps, PredictShard(spec, positions) if predict else Shard(spec, _SHARE_SPEC))


def weigh_classes(stream: ShardStream, class_weight: Mapping[int, float]) -> ShardStream:
    """Convert Keras's `class_weight` to sample weights; the shape of y is (b,), (b, 1) or (b, classes), one-hot."""
    check_unweighted(stream.spec.data)
    table = class_weight_table(class_weight)

    def epoch(epoch_number: int) -> Iterator[Shard]:
        for (x, y), share in stream.epoch(epoch_number):
            classes = y.argmax(-1) if y.ndim > 1 and y.shape[-1] != 1 else y.reshape(-1).astype(int)
            clipped_classes = np.minimum(classes, len(table) - 1)
            yield Shard((x, y, np.where(classes < len(table), table[clipped_classes], table.dtype.type(1))), share)

    weights = keras.KerasTensor((None,), table.dtype)
    return stream._replace(epoch=epoch, spec=Shard((*stream.spec.data, weights), stream.spec.share))


def check_unweighted(batch: Data) -> None:
    """Refuse class weights for batches without targets, or with sample weights.

    Raises:
        HpcrunError: A batch is not (x, y).
    """
    if not isinstance(batch, tuple) or len(batch) != 2:
        problem = "have sample weights already" if isinstance(batch, tuple) and len(batch) > 2 else "have no targets"
        raise HpcrunError(
            f"class_weight requires batches of (x, y); these {problem}",
            hint="leave class_weight out, and multiply sample_weight by the weights of the classes",
        )


def class_weight_table(class_weight: Mapping[int, float]) -> Array:
    """Return the weight of each class, shape (largest class + 1,); 1 for classes without a weight."""
    table = np.ones(max(class_weight) + 1, keras.config.floatx())
    table[list(class_weight)] = list(class_weight.values())
    return table


def count_samples(data: Data) -> int:
    """Return the number of samples in arrays.

    Raises:
        HpcrunError: The arrays are empty, or have different numbers of samples.
    """
    lengths = {int(array.shape[0]) for array in keras.tree.flatten(data)}
    if len(lengths) != 1 or not min(lengths):
        raise HpcrunError(f"x, y and sample_weight have {sorted(lengths)} samples", hint="give all the same number")
    return lengths.pop()


def unpack_single(batch: tuple[Data, ...]) -> Data:
    """Unpack a batch (x,) to x, as Keras does, unless x is a tuple."""
    return batch if len(batch) > 1 or isinstance(batch[0], tuple) else batch[0]


def epoch_order(samples: int, seed: int | None, epoch: int) -> Array:
    """Return the sample order of an epoch, int64 of shape (samples,), equal on all ranks."""
    if seed is None:
        return np.arange(samples)
    return np.random.default_rng([seed, epoch]).permutation(samples)


class ShardDataAdapter(DataAdapter):  # type: ignore[misc]  # keras is untyped
    """Keras data adapter for a stream, on JAX and PyTorch.

    Args:
        stream: The shards of all epochs.
        first_epoch: Number of the first epoch, from 0.
        drop_batches: Number of shards to skip in a stream that continues from epoch to epoch.
    """

    def __init__(self, stream: ShardStream, first_epoch: int, drop_batches: int) -> None:
        self._stream, self._epoch_numbers, self._drop_batches = stream, count(first_epoch), drop_batches

    def get_numpy_iterator(self) -> Iterator[Shard | PredictShard]:
        """Yield the shards of the next epoch."""
        drop_batches, self._drop_batches = self._drop_batches, 0
        yield from islice(self._stream.epoch(next(self._epoch_numbers)), drop_batches, None)

    get_jax_iterator = get_numpy_iterator

    def get_torch_dataloader(self) -> Iterator[Shard | PredictShard]:
        """Yield the shards of the next epoch as PyTorch tensors."""
        for part in self.get_numpy_iterator():
            yield keras.tree.map_structure(keras.ops.convert_to_tensor, part)

    @property
    def num_batches(self) -> int | None:
        """Number of shards in an epoch; None if unknown."""
        return self._stream.steps

    @property
    def batch_size(self) -> None:
        """Return None, because shards differ in size."""
        return

    has_partial_batch = partial_batch_size = None


_SHARE_SPEC = keras.KerasTensor((), "float32")


def _py_dataset_epoch(batches: keras.utils.PyDataset, seed: int | None, epoch_number: int) -> Iterator[Data]:
    steps = batches.num_batches
    order: Iterable[int] = count() if steps is None else epoch_order(steps, seed, epoch_number).tolist()
    batches.on_epoch_begin()
    yield from _load_batches(batches, order)
    batches.on_epoch_end()


def _load_batches(batches: keras.utils.PyDataset, order: Iterable[int]) -> Iterator[Data]:
    if batches.workers < 2:
        yield from map(batches.__getitem__, order)
        return
    # Use threads even if Keras would use processes: forking does not work with MPI.
    with ThreadPoolExecutor(batches.workers) as pool:
        futures = (pool.submit(batches.__getitem__, index) for index in order)
        pending_futures = deque(islice(futures, max(batches.max_queue_size, batches.workers)))
        while pending_futures:
            yield pending_futures.popleft().result()
            pending_futures.extend(islice(futures, 1))


def _restart_each_epoch(batches: Iterable[Data]) -> Callable[[int], Iterator[Data]]:
    return lambda _: iter(batches)


def _continue_across_epochs(first_batches: list[Data], batches: Iterator[Data]) -> Callable[[int], Iterator[Data]]:
    all_batches = chain(first_batches, batches)
    return lambda _: all_batches


def _to_tuple(batch: Data) -> tuple[Data, ...]:
    """Return a batch as (x,), (x, y) or (x, y, sample_weight) of arrays.

    Raises:
        HpcrunError: The batch has sample weights but no targets.
    """
    parts = keras.tree.lists_to_tuples(batch)
    parts = parts if isinstance(parts, tuple) else (parts,)
    if len(parts) > 2 and parts[1] is None and parts[2] is not None:
        raise HpcrunError("batches of (x, None, sample_weight)", hint="give targets, too")
    return tuple(keras.tree.map_structure(_to_array, part) for part in parts if part is not None)


def _to_array(value: Data) -> Array:
    array = keras.ops.convert_to_numpy(value) if keras.ops.is_tensor(value) else np.asarray(value)
    return array.astype(keras.config.floatx(), copy=False) if array.dtype.kind == "f" else array


def _common_spec(*arrays: Array) -> keras.KerasTensor:
    axes = zip(*(array.shape[1:] for array in arrays), strict=True)
    return keras.KerasTensor((None, *(a[0] if len(set(a)) == 1 else None for a in axes)), arrays[0].dtype)
