"""Batches of images without TensorFlow: from TFRecords, from a folder with one folder per class, or random images."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.experimental import multihost_utils

from hpcrun.data import image_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.data.image_reader import ImageReader

    Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


class RandomImages:
    """Random pixels and classes, for speed measurements only."""

    def __init__(self, samples: int, size: int, classes: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.pool = generator.integers(256, size=(64, size, size, 3), dtype=np.uint8)  # (64, 224, 224, 3)
        self.labels = generator.integers(classes, size=samples)  # (n,)
        self.names = list(map(str, range(classes)))

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int, _: Random) -> tuple[np.ndarray, int]:
        """Return an image, (224, 224, 3), and its class."""
        return self.pool[index % len(self.pool)], self.labels[index]


def read_split(folder: str, split: str, size: int, augment: str, limit: int) -> ImageReader:
    """Find the images of `train` or `validation`, the first `limit` of them (0: all); every process must call this."""
    processes = {"rank": jax.process_index(), "ranks": jax.process_count(), "gather": gather}
    return image_reader.read_split(folder, split, size=size, augment=augment, limit=limit, **processes)


def gather(local_object: object) -> list:
    """Gather one object from each process, on all processes."""
    if jax.process_count() == 1:
        return [local_object]
    data = np.frombuffer(pickle.dumps(local_object), np.uint8)  # processes exchange arrays of one shape
    sizes = multihost_utils.process_allgather(np.array(len(data)))  # (processes,)
    rows = multihost_utils.process_allgather(np.pad(data, (0, sizes.max() - len(data))))  # (processes, bytes)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]  # noqa: S301


def batches(
    images: ImageReader | RandomImages, batch_size: int, workers: int, seed: str, *, shuffle: bool, first_batch: int = 0
) -> Iterator[Batch]:
    """Yield this process's shard of every batch; a batch is the same on any number of processes.

    Args:
        images: The images, the same on all processes.
        batch_size: The global batch size, over all processes.
        workers: The number of threads that read and decode images; 0: the calling thread.
        seed: The seed of order, crops and flips, a different one for each epoch.
        shuffle: Whether to shuffle the images and drop the last, smaller batch; if not, the batch is padded with images
            of weight 0, because JAX divides it evenly among the devices.
        first_batch: The number of batches to skip, which were trained before an interruption.

    Yields:
        Images (b, 224, 224, 3), uint8, classes (b,) and weights (b,).
    """
    order = np.arange(len(images))
    if shuffle:
        Random(seed).shuffle(order)  # noqa: S311
    shard_size = batch_size // jax.process_count()
    start = jax.process_index() * shard_size
    with ThreadPoolExecutor(workers or 1) as pool:
        map_images = pool.map if workers else map
        for number in range(first_batch, len(order) // batch_size if shuffle else -(-len(order) // batch_size)):
            batch_indices = order[number * batch_size : (number + 1) * batch_size]
            shard_indices = np.resize(batch_indices, batch_size)[start : start + shard_size]
            # The crop of an image does not depend on the number of processes.
            generators = [Random(f"{seed} {index}") for index in shard_indices]  # noqa: S311
            pixels, labels = zip(*map_images(images.read, shard_indices.tolist(), generators), strict=True)
            weights = np.arange(start, start + shard_size) < len(batch_indices)
            yield np.stack([np.asarray(image) for image in pixels]), np.array(labels), weights.astype("float32")
