"""Processes that read and decode images; threads would share Python's lock with the thread that runs JAX.

They must start before the import of JAX, because a process with JAX's threads cannot be copied safely.
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
    """Start so many processes; with 0, return None."""
    if not count:
        return None
    pool = ProcessPoolExecutor(count, get_context("fork"), _follow_parent, (os.getpid(),))
    pool.submit(os.getpid).result()  # the first task starts all processes
    return pool


def _follow_parent(parent: int) -> None:
    """Let the parent alone handle signals that stop the job, and end with the parent, however it ends."""
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)

    def wait_for_parent() -> None:
        while os.getppid() == parent:
            time.sleep(2)
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()


def read_images(images: ImageReader, seeds: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return all images of a reader, (n, 224, 224, 3), uint8, and their classes; each seed is that of a crop."""
    generators = map(Random, seeds)
    pixels, labels = zip(*(images.read(index, generator) for index, generator in enumerate(generators)), strict=True)
    return np.stack([np.asarray(image) for image in pixels]), np.array(labels)
