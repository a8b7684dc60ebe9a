"""Batches of hpcrun's TFRecords, of a folder with a folder for each class, or of random images; without TensorFlow."""

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
        draw = np.random.default_rng(seed)
        self.pool = draw.integers(256, size=(64, size, size, 3), dtype=np.uint8)  # (64, 224, 224, 3)
        self.labels = draw.integers(classes, size=samples)  # (n,)
        self.names = list(map(str, range(classes)))

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int, _: Random) -> tuple[np.ndarray, int]:
        """Return an image, (224, 224, 3), and its class."""
        return self.pool[index % len(self.pool)], self.labels[index]


def read_split(folder: str, split: str, size: int, augment: str, limit: int) -> ImageReader:
    """Find the images of `train` or `validation`, the first `limit` of them (0: all); every process must call this."""
    place = {"rank": jax.process_index(), "ranks": jax.process_count(), "gather": gather}
    return image_reader.read_split(folder, split, size=size, augment=augment, limit=limit, **place)


def gather(part: object) -> list:
    """Return the objects of all processes on each of them."""
    if jax.process_count() == 1:
        return [part]
    data = np.frombuffer(pickle.dumps(part), np.uint8)  # processes exchange arrays of one shape
    sizes = multihost_utils.process_allgather(np.array(len(data)))  # (processes,)
    rows = multihost_utils.process_allgather(np.pad(data, (0, sizes.max() - len(data))))  # (processes, bytes)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]  # noqa: S301


def batches(
    images: ImageReader | RandomImages, batch: int, workers: int, seed: str, *, shuffle: bool, first: int = 0
) -> Iterator[Batch]:
    """Yield this process's part of every batch; all processes together have the batch of one process.

    Args:
        images: The images, the same on all processes.
        batch: The number of images of a batch, over all processes.
        workers: The number of threads that read and decode; 0: none.
        seed: The seed of the order and of crops and flips, another one for each epoch.
        shuffle: Whether to shuffle the images, and to leave out the last, smaller batch; if not, it is filled up with
            images of weight 0, because JAX divides it evenly among the devices.
        first: The number of batches to leave out, which were done before an interruption.

    Yields:
        Images (b, 224, 224, 3), uint8, classes (b,) and weights (b,).
    """
    order = np.arange(len(images))
    if shuffle:
        Random(seed).shuffle(order)  # noqa: S311
    share = batch // jax.process_count()
    begin = jax.process_index() * share
    with ThreadPoolExecutor(workers or 1) as pool:
        read = pool.map if workers else map
        for number in range(first, len(order) // batch if shuffle else -(-len(order) // batch)):
            indices = order[number * batch : (number + 1) * batch]
            own = np.resize(indices, batch)[begin : begin + share]
            # An image gets the same crop on any number of processes.
            draws = [Random(f"{seed} {index}") for index in own]  # noqa: S311
            pixels, labels = zip(*read(images.read, own.tolist(), draws), strict=True)
            weights = np.arange(begin, begin + share) < len(indices)
            yield np.stack([np.asarray(image) for image in pixels]), np.array(labels), weights.astype("float32")
