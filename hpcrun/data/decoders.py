"""Processes that read and decode images for one rank, without TensorFlow: threads would compete for Python's GIL.

The processes must start before PyTorch or JAX has started threads (with the first tensor or the first connection),
because a process that is forked from a process with threads may wait forever for a lock.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.context import ForkContext, ForkProcess
from random import Random
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.data.image_reader import ImageReader

    Arrays = tuple[np.ndarray, np.ndarray]  # images (n, size, size, 3), uint8, and their classes (n,) from 0

CHUNK_SIZE = 8
"""Number of images that a process reads at a time."""

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class _DecoderProcess(ForkProcess):
    """A process that blocks SIGTERM: if another decoder was killed, the pool must end this one by SIGKILL."""

    def terminate(self) -> None:
        self.kill()


class _DecoderContext(ForkContext):
    Process = _DecoderProcess


def start(count: int) -> ProcessPoolExecutor | None:
    """Start a pool of `count` decoder processes, which block stop signals; return None if `count` is 0."""
    if not count:
        return None
    pool = ProcessPoolExecutor(count, _DecoderContext(), _follow_parent, (os.getpid(),))
    earlier_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)  # which the processes inherit
    try:
        pool.submit(os.getpid).result()  # the first task starts all processes
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier_mask)
    return pool


def _follow_parent(parent: int) -> None:
    """Exit when the parent has ended."""

    def wait_for_parent() -> None:
        while os.getppid() == parent:
            time.sleep(2)
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def start_reading(images: ImageReader, seeds: Sequence[str], pool: ProcessPoolExecutor | None) -> Callable[[], Arrays]:
    """Start to read all images of a reader, and return a function that waits for them.

    Args:
        images: The images, such as those of a shard of a batch.
        seeds: For each image the seed of its crop.
        pool: The processes that read the images; None: this process reads them when the returned function is called.
    """
    if pool is None or not len(images):
        return partial(read_images, images, seeds)
    chunks = [range(len(images))[first : first + CHUNK_SIZE] for first in range(0, len(images), CHUNK_SIZE)]
    tasks = [pool.submit(read_images, images.select(chunk), [seeds[index] for index in chunk]) for chunk in chunks]

    def wait() -> Arrays:
        pixels, labels = zip(*(task.result() for task in tasks), strict=True)
        return np.concatenate(pixels), np.concatenate(labels)

    return wait


def read_images(images: ImageReader, seeds: Sequence[str]) -> Arrays:
    """Return all images of a reader, and their classes; a seed is for the crop of an image."""
    pixels = np.empty((len(images), images.size, images.size, 3), "uint8")
    labels = np.empty(len(images), "int64")
    for index, seed in enumerate(seeds):
        image, labels[index] = images.read(index, Random(seed))  # noqa: S311
        pixels[index] = np.asarray(image)
    return pixels, labels
