"""Processes that read and decode images; threads would compete for the GIL with the thread that runs JAX.

The processes must start before the import of JAX, because forking a process with JAX's threads is unsafe.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.data.image_reader import ImageReader


def start(count: int) -> ProcessPoolExecutor | None:
    """Start a pool of `count` decoder processes; return None if `count` is 0."""
    if not count:
        return None
    pool = ProcessPoolExecutor(count, get_context("fork"), _follow_parent, (os.getpid(),))
    pool.submit(os.getpid).result()  # the first task starts the processes
    return pool


def _follow_parent(parent: int) -> None:
    """Ignore stop signals, which the parent handles, and exit when the parent has ended."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)

    def wait_for_parent() -> None:
        while os.getppid() == parent:
            time.sleep(2)
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def read_images(images: ImageReader, seeds: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return all images of a reader, (n, 224, 224, 3), uint8, and their classes; a seed is for the crop of an image."""
    generators = map(Random, seeds)
    pixels, labels = zip(*(images.read(index, generator) for index, generator in enumerate(generators)), strict=True)
    return np.stack([np.asarray(image) for image in pixels]), np.array(labels)
