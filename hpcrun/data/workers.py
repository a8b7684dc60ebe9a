"""Processes that write the shards of a data set in parallel."""

from __future__ import annotations

import os
import signal
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import count
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from hpcrun.data.shards import ShardResult, write_shard
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from hpcrun.data.sources import Source

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class ShardTask:
    """A shard to write.

    Attributes:
        file: The shard.
        sources: Its images.
        resize: Height and width in pixels; 0 for the images' own.
        raw: Whether to store pixels instead of JPEG files.
    """

    file: Path
    sources: Sequence[Source]
    resize: int
    raw: bool

    def write(self, report: Callable[[], object]) -> ShardResult:
        """Write it; call a function after each image."""
        return write_shard(self.file, self.sources, report, resize=self.resize, raw=self.raw)


def default_workers() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def write_shards(tasks: list[ShardTask], workers: int, report: Callable[[int], None]) -> Iterator[ShardResult]:
    """Write shards.

    Args:
        tasks: The shards.
        workers: Number of processes; one alone, or one shard, is written by this process.
        report: Called now and then with the number of images that are done.

    Yields:
        The result of each shard, as soon as it is written.

    Raises:
        HpcrunError: A shard cannot be written, or a process was killed.
    """
    workers = min(workers, len(tasks))
    try:
        if workers > 1:
            yield from _write_in_processes(tasks, workers, report)
        else:
            done = count(1)
            for task in tasks:
                yield task.write(lambda: report(next(done)))
    except OSError as error:
        raise HpcrunError(
            f"{error.filename or 'a shard'}: {error.strerror or error}",
            hint="make room, or give another folder; the same command goes on where it stopped",
            exit_code=1,
        ) from None
    except BrokenProcessPool:
        raise HpcrunError(
            "a process of the build was killed, usually for want of memory",
            hint="the same command with fewer --workers goes on where it stopped",
            exit_code=1,
        ) from None


_images: Any = None
"""The number of images that all processes of a build have done."""


def _start_worker(images: Any) -> None:
    global _images  # noqa: PLW0603 - how a process gets a shared counter
    _images = images
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process ends the others


def _count_image() -> None:
    with _images.get_lock():
        _images.value += 1


def _write(task: ShardTask) -> ShardResult:
    return task.write(_count_image)


def _write_in_processes(tasks: list[ShardTask], workers: int, report: Callable[[int], None]) -> Iterator[ShardResult]:
    context = get_context("forkserver")
    images = context.Value("q", 0)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (images,))
    try:
        waiting: set[Future[ShardResult]] = {pool.submit(_write, task) for task in tasks}
        while waiting:
            ended, waiting = wait(waiting, _POLL_SECONDS, FIRST_COMPLETED)
            report(images.value)
            for future in ended:
                yield future.result()
    finally:
        for process in list((pool._processes or {}).values()):  # noqa: SLF001 - Python 3.14 has terminate_workers()
            process.terminate()
        pool.shutdown(cancel_futures=True)
