"""Heartbeat of each rank: a small file in the run directory with the state of the rank.

A thread writes the file, even while the script waits, compiles or hangs. A heartbeat is missing only if the
process is dead, stopped, cut off from the file system, or busy in a library that holds the GIL.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hpcrun import permissions
from hpcrun.run.job import read_number, run_dir
from hpcrun.run.script_position import script_position
from hpcrun.run.waiting import current_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Json = dict[str, Any]

DEFAULT_SECONDS = 5.0  # default of HPCRUN_HEARTBEAT_SECONDS, the interval of heartbeats
# maximum number of writes per second of all ranks together, because shared file systems are slow
MAX_WRITES_PER_SECOND = 100

_details: list[Callable[[], Json]] = []
_started: list[HeartbeatThread] = []


class HeartbeatThread:
    """The heartbeat of one rank.

    Args:
        file: The heartbeat file, in an existing folder.
        rank: This rank.
        host: Host name of this rank.
        interval: Seconds between two heartbeats.
    """

    def __init__(self, file: Path, rank: int, host: str, interval: float) -> None:
        self.file = file
        self.identity = {
            "rank": rank,
            "host": host,
            "pid": os.getpid(),
            "every": interval,
        }
        self.interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hpcrun's heartbeat", daemon=True)

    def start(self, delay: float) -> None:
        """Start the thread that writes heartbeats until `end`.

        Args:
            delay: Seconds until the first heartbeat.
        """
        self._delay = delay
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """Stop the thread, and write a last heartbeat when the script has ended."""
        if os.getpid() == self.identity["pid"]:  # forked children write no heartbeat
            self._stop.set()
            self._thread.join(1)
            self.write(ended=True)

    def _run(self) -> None:
        pause = self._delay
        while not self._stop.wait(pause):
            with suppress(Exception):  # continue after an error: the next write may succeed
                self.write()
            pause = self.interval

    def write(self, *, ended: bool = False) -> None:
        """Replace the heartbeat file.

        Args:
            ended: Whether this is the last heartbeat.
        """
        wait = current_wait()
        record = {**self.identity, "time": round(time.time(), 3), "ended": ended}
        if wait:
            record |= {"waits": str(wait), "waited_seconds": round(time.perf_counter() - wait.start_time, 3)}
        if not ended:
            record["at"] = script_position(with_library_function=wait is None)
        for details in _details:
            with suppress(Exception):  # on an error, write a heartbeat without details
                record |= details()
        temporary_file = self.file.with_name(f".{self.file.name}.new")
        with suppress(OSError):  # a full disk must not end the training
            with open(temporary_file, "w", encoding="utf-8", opener=permissions.opener) as stream:
                stream.write(json.dumps(record))
            temporary_file.replace(self.file)  # atomic: a reader never sees an incomplete file


def start_heartbeat(rank: int, ranks: int, interval: float) -> None:
    """Start the heartbeat of this process if it runs in an hpcrun job; a second call has no effect.

    Args:
        rank: This rank.
        ranks: Number of ranks.
        interval: Seconds between two heartbeats; 0: no heartbeats.
    """
    folder = run_dir()
    if not folder or not interval or _started:
        return
    folder /= "heartbeats"
    try:
        permissions.make_folder(folder)
    except OSError:
        return
    interval = max(interval, ranks / MAX_WRITES_PER_SECOND)
    _started.append(HeartbeatThread(folder / f"rank-{rank}.json", rank, platform.node(), interval))
    # Spread the first heartbeats over the interval, so that ranks do not write at the same time.
    _started[0].start(delay=interval * rank / ranks)


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Let heartbeats inside the block contain the rank's activity and its duration since the first heartbeat.

    Args:
        name: Verb and object, such as ``imports TensorFlow``.
    """
    start_times: list[float] = []

    def details() -> Json:
        clock = time.perf_counter()
        if not start_times:
            start_times.append(clock)
        return {"activity": name, "activity_seconds": round(clock - start_times[0], 3)}

    set_details(details)
    try:
        yield
    finally:
        set_details(dict)


def set_details(details: Callable[[], Json]) -> None:
    """Set the details that each heartbeat includes, replacing previous details.

    Args:
        details: Function that returns keys and values; called in the heartbeat thread.
    """
    _details[:] = [details]


def read_heartbeat_seconds() -> float:
    """Read the interval of heartbeats in seconds from HPCRUN_HEARTBEAT_SECONDS.

    Raises:
        HpcrunError: The value is not a number of seconds.
    """
    return read_number("HPCRUN_HEARTBEAT_SECONDS", DEFAULT_SECONDS, "seconds", "5, or 0 for no heartbeats")
