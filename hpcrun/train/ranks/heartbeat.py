"""Heartbeat of each rank: a small file in the run directory with the state of the rank.

A thread writes it, also while the script waits, compiles or makes no progress. A rank is silent only if its process is
dead, stopped, cut off from the file system, or busy in a library that holds the GIL.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import permissions
from hpcrun.train.ranks.script_position import script_position
from hpcrun.train.ranks.waiting import current_wait
from hpcrun.train.settings import read_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hpcrun.train.types import Json

DEFAULT_SECONDS = 5.0  # HPCRUN_HEARTBEAT_SECONDS: between two heartbeats
MAX_WRITES_PER_SECOND = 100  # maximum for all ranks together: shared file systems are slow

_details: list[Callable[[], Json]] = []


class Heartbeat:
    """The heartbeat of one rank.

    Args:
        file: The file, in an existing folder.
        rank: This rank.
        host: Its host.
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

    def start(self, after: float) -> None:
        """Start the thread, which runs until `end`.

        Args:
            after: Seconds until the first heartbeat.
        """
        self._after = after
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """Write a last heartbeat: this rank's script has ended."""
        if os.getpid() == self.identity["pid"]:  # not in forked children
            self._stop.set()
            self._thread.join(1)
            self.write(ended=True)

    def _run(self) -> None:
        pause = self._after
        while not self._stop.wait(pause):
            with suppress(Exception):  # the next one may succeed
                self.write()
            pause = self.interval

    def write(self, *, ended: bool = False) -> None:
        """Replace the file.

        Args:
            ended: Whether this is the last heartbeat.
        """
        wait = current_wait()
        record = {**self.identity, "time": round(time.time(), 3), "ended": ended}
        if wait:
            record |= {"waits": str(wait), "waited_seconds": round(time.perf_counter() - wait.began, 3)}
        if not ended:
            record["at"] = script_position(deep=wait is None)
        for details in _details:
            with suppress(Exception):  # write a heartbeat without details
                record |= details()
        new = self.file.with_name(f".{self.file.name}.new")
        with suppress(OSError):  # a full disk must not end the training
            with open(new, "w", encoding="utf-8", opener=permissions.opener) as opened:
                opened.write(json.dumps(record))
            new.replace(self.file)  # atomic: a reader never sees half of it


def start_heartbeat(rank: int, hosts: Sequence[str], interval: float) -> None:
    """Start the heartbeat, if this is a job of hpcrun.

    Args:
        rank: This rank.
        hosts: The hosts of all ranks.
        interval: Seconds between two heartbeats; 0 for none.
    """
    run_dir = os.environ.get("HPCRUN_RUN_DIR")
    if not run_dir or not interval:
        return
    folder = Path(run_dir, "heartbeats")
    try:
        permissions.make_folder(folder)
    except OSError:
        return
    interval = max(interval, len(hosts) / MAX_WRITES_PER_SECOND)
    # Spread over the interval, so that not all ranks write at once.
    Heartbeat(folder / f"rank-{rank}.json", rank, hosts[rank], interval).start(after=interval * rank / len(hosts))


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Let heartbeats say what the rank does inside the block, and how long since the first heartbeat.

    Args:
        name: A verb with its object: ``imports TensorFlow``.
    """
    began: list[float] = []

    def details() -> Json:
        now = time.perf_counter()
        if not began:
            began.append(now)
        return {"activity": name, "activity_seconds": round(now - began[0], 3)}

    set_details(details)
    try:
        yield
    finally:
        set_details(dict)


def set_details(details: Callable[[], Json]) -> None:
    """Set the details that each heartbeat includes, in place of earlier ones.

    Args:
        details: A function that returns keys and values; another thread calls it.
    """
    _details[:] = [details]


def read_heartbeat_seconds() -> float:
    """Read the interval of heartbeats, HPCRUN_HEARTBEAT_SECONDS.

    Raises:
        HpcrunError: It is not a number of seconds.
    """
    return read_number("HPCRUN_HEARTBEAT_SECONDS", DEFAULT_SECONDS, "seconds", "5, or 0 for no heartbeats")
