"""Processes that write the shards of a data set in parallel."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import count
from multiprocessing import connection, get_context, parent_process
from typing import TYPE_CHECKING, Any

from hpcrun.data.shard_files import ShardResult, write_shard
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from hpcrun.data.image_sources import ImageSource

_POLL_SECONDS = 0.2


@frozen
class ShardTask:
    """A shard to write, for one of the processes.

    Attributes:
        file: Path of the shard.
        sources: The images of the shard.
        resize: Height and width of the stored images in pixels; 0 keeps the size of each image.
        raw: Whether to store pixels instead of JPEG files.
    """

    file: Path
    sources: Sequence[ImageSource]
    resize: int
    raw: bool

    def write(self, report: Callable[[], object]) -> ShardResult:
        """Write the shard; call `report` after each image."""
        return write_shard(self.file, self.sources, report, resize=self.resize, raw=self.raw)


def default_workers() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def write_shards(tasks: list[ShardTask], workers: int, report: Callable[[int], None]) -> Iterator[ShardResult]:
    """Write shards in parallel.

    Args:
        tasks: The shards to write.
        workers: Maximum number of processes; with one worker or one shard, this process writes.
        report: Function that is called repeatedly with the number of finished images.

    Yields:
        The result of each shard, as soon as it is written.

    Raises:
        HpcrunError: A process was killed.
        OSError: A shard cannot be written.
    """
    workers = min(workers, len(tasks))
    try:
        if workers > 1:
            yield from _write_in_processes(tasks, workers, report)
        else:
            counter = count(1)
            for task in tasks:
                yield task.write(lambda: report(next(counter)))
    except BrokenProcessPool:
        raise HpcrunError(
            "a process of the build was killed, usually because memory ran out",
            hint="the same command with fewer --workers resumes the build",
            exit_code=1,
        ) from None


_finished_images: Any = None
"""Number of images that all processes of a build have finished, in shared memory."""


def _start_worker(finished_images: Any) -> None:
    global _finished_images  # noqa: PLW0603 - an initializer cannot pass values to tasks
    _finished_images = finished_images
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the main process terminates the workers
    threading.Thread(target=_exit_with_main_process, daemon=True).start()


def _exit_with_main_process() -> None:
    """Wait until the main process has ended, and exit: a killed one cannot terminate the workers."""
    main_process = parent_process()
    assert main_process  # noqa: S101 - for mypy: a worker has a parent
    connection.wait([main_process.sentinel])
    os._exit(1)


def _count_image() -> None:
    with _finished_images.get_lock():
        _finished_images.value += 1


def _write_shard(task: ShardTask) -> ShardResult:
    return task.write(_count_image)


def _write_in_processes(tasks: list[ShardTask], workers: int, report: Callable[[int], None]) -> Iterator[ShardResult]:
    context = get_context("forkserver")
    finished_images = context.Value("q", 0)
    pool = ProcessPoolExecutor(workers, context, _start_worker, (finished_images,))
    try:
        pending: set[Future[ShardResult]] = {pool.submit(_write_shard, task) for task in tasks}
        while pending:
            completed, pending = wait(pending, _POLL_SECONDS, FIRST_COMPLETED)
            report(finished_images.value)
            for future in completed:
                yield future.result()
    finally:
        for process in list((pool._processes or {}).values()):  # noqa: SLF001 - Python 3.14 has terminate_workers()
            process.terminate()
        pool.shutdown(cancel_futures=True)
