"""Batches of images without TensorFlow: from TFRecords, from a folder with one subfolder per class, or random."""

from __future__ import annotations

import pickle
from collections import deque
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.experimental import multihost_utils

from hpcrun.data import decoders, image_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import ProcessPoolExecutor

    from hpcrun.data.image_reader import ImageReader

    Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


PREFETCHED_BATCHES = 2
"""Number of batches that the processes read while the device trains on another one."""


class RandomImages:
    """Random pixels and classes, for speed measurements only."""

    def __init__(self, samples: int, size: int, classes: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.pool = generator.integers(256, size=(64, size, size, 3), dtype=np.uint8)  # (64, 224, 224, 3)
        self.labels = generator.integers(classes, size=samples)  # (n,)
        self.names = list(map(str, range(classes)))

    def __len__(self) -> int:
        return len(self.labels)

    def read_images(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return images, (n, 224, 224, 3), uint8, and their classes."""
        return self.pool[indices % len(self.pool)], self.labels[indices]


def read_split(folder: str, split: str, size: int, augment: str, limit: int) -> ImageReader:
    """Find the first `limit` images of `train` or `validation` (0: all images); every process must call this."""
    processes = {"rank": jax.process_index(), "ranks": jax.process_count(), "gather": gather}
    return image_reader.read_split(folder, split, size=size, augment=augment, limit=limit, **processes)


def gather(local_object: object) -> list:
    """Return the objects of all processes; every process must call this."""
    if jax.process_count() == 1:
        return [local_object]
    data = np.frombuffer(pickle.dumps(local_object), np.uint8)  # processes can exchange arrays only
    sizes = multihost_utils.process_allgather(np.array(len(data)))  # (processes,)
    rows = multihost_utils.process_allgather(np.pad(data, (0, sizes.max() - len(data))))  # (processes, bytes)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]  # noqa: S301


def batches(
    images: ImageReader | RandomImages,
    batch_size: int,
    pool: ProcessPoolExecutor | None,
    seed: str,
    *,
    shuffle: bool,
    first_batch: int = 0,
) -> Iterator[Batch]:
    """Yield this process's shard of every batch; a batch is the same on any number of processes.

    Args:
        images: The images, the same on all processes.
        batch_size: The global batch size, over all processes.
        pool: The processes that read and decode images; None: this process reads them.
        seed: The seed of order, crops and flips, different for each epoch.
        shuffle: Whether to shuffle the images and drop the last, smaller batch; if not, the last batch is padded with
            images of weight 0, because JAX divides batches evenly among the devices.
        first_batch: The number of batches to skip, which were trained before an interruption.

    Yields:
        Images (b, 224, 224, 3), uint8, classes (b,) and weights (b,).
    """
    order = np.arange(len(images))
    if shuffle:
        Random(seed).shuffle(order)  # noqa: S311
    shard_size = batch_size // jax.process_count()
    start = jax.process_index() * shard_size
    pending: deque[tuple[Callable[[], tuple[np.ndarray, np.ndarray]], np.ndarray]] = deque()
    for number in range(first_batch, len(order) // batch_size if shuffle else -(-len(order) // batch_size)):
        batch_indices = order[number * batch_size : (number + 1) * batch_size]
        shard_indices = np.resize(batch_indices, batch_size)[start : start + shard_size]
        weights = (np.arange(start, start + shard_size) < len(batch_indices)).astype("float32")
        pending.append((_start_reading(images, shard_indices, pool, seed), weights))
        if len(pending) > PREFETCHED_BATCHES:
            read, weights = pending.popleft()
            yield *read(), weights
    for read, weights in pending:
        yield *read(), weights


def _start_reading(
    images: ImageReader | RandomImages, indices: np.ndarray, pool: ProcessPoolExecutor | None, seed: str
) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Start to read images, and return a function that returns them with their classes."""
    if isinstance(images, RandomImages):
        return partial(images.read_images, indices)
    # The crop of an image does not depend on the number of processes.
    return decoders.start_reading(images.select(indices), [f"{seed} {index}" for index in indices], pool)
