"""Batches of images without TensorFlow: from TFRecords, from a folder with one subfolder per class, or random."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from hpcrun.data import decoders, image_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import ProcessPoolExecutor

    from hpcrun.data.image_reader import ImageReader


PREFETCHED_BATCHES = 2
"""Number of batches that the processes read while the device trains on another one."""


class RandomImages:
    """Random pixels and classes, for speed measurements only."""

    def __init__(self, samples: int, size: int, classes: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.pool = torch.randint(256, (64, size, size, 3), dtype=torch.uint8, generator=generator)  # (64, 224, 224, 3)
        self.labels = torch.randint(classes, (samples,), generator=generator)  # (n,)
        self.names = list(map(str, range(classes)))

    def __len__(self) -> int:
        return len(self.labels)

    def read_images(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return images, (n, 224, 224, 3), uint8, and their classes."""
        return self.pool[indices % len(self.pool)], self.labels[indices]


def read_split(folder: str, split: str, size: int, augment: str, limit: int) -> ImageReader:
    """Find the first `limit` images of `train` or `validation` (0: all images); every rank must call this."""

    def gather(local_object: object) -> list:
        objects = [local_object] * dist.get_world_size()
        dist.all_gather_object(objects, local_object)
        return objects

    ranks = {"rank": dist.get_rank(), "ranks": dist.get_world_size(), "gather": gather}
    return image_reader.read_split(folder, split, size=size, augment=augment, limit=limit, **ranks)


def count_batches(samples: int, batch_size: int, *, shuffle: bool) -> int:
    """Return the number of batches of an epoch: `shuffle` drops the last, smaller batch."""
    return samples // batch_size if shuffle else -(-samples // batch_size)


def batches(
    images: ImageReader | RandomImages,
    batch_size: int,
    pool: ProcessPoolExecutor | None,
    seed: int,
    *,
    shuffle: bool,
    first_batch: int = 0,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield this rank's shard of every batch; a batch is the same on any number of ranks.

    Args:
        images: The images, the same on all ranks.
        batch_size: The global batch size, over all ranks.
        pool: The processes that read and decode images; None: this process reads them.
        seed: The seed of order, crops and flips, different for each epoch.
        shuffle: Whether to shuffle the images and drop the last, smaller batch.
        first_batch: The number of batches to skip, which were trained before an interruption.

    Yields:
        Images (b, 224, 224, 3), uint8, and classes (b,); b may be 0, if the last batch has fewer samples than ranks.
    """
    order = torch.arange(len(images))
    if shuffle:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    pending: deque[Callable[[], tuple[torch.Tensor, torch.Tensor]]] = deque()
    for number in range(first_batch, count_batches(len(images), batch_size, shuffle=shuffle)):
        batch = order[number * batch_size : (number + 1) * batch_size]
        pending.append(_start_reading(images, batch[dist.get_rank() :: dist.get_world_size()], pool, seed))
        if len(pending) > PREFETCHED_BATCHES:
            yield pending.popleft()()
    for read in pending:
        yield read()


def _start_reading(
    images: ImageReader | RandomImages, indices: torch.Tensor, pool: ProcessPoolExecutor | None, seed: int
) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
    """Start to read images, and return a function that returns them with their classes."""
    if isinstance(images, RandomImages):
        return partial(images.read_images, indices)
    numbers = indices.tolist()
    # The crop of an image does not depend on the number of ranks.
    read = decoders.start_reading(images.select(numbers), [f"{seed} {number}" for number in numbers], pool)

    def wait() -> tuple[torch.Tensor, torch.Tensor]:
        pixels, labels = map(torch.from_numpy, read())
        return (pixels.pin_memory() if torch.cuda.is_available() else pixels), labels

    return wait
