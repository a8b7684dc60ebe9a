"""Each rank's sign of life: a small file in the run directory that says where it is.

A thread writes it, so that it also comes while the script waits, compiles or hangs. A rank falls silent only where its
process is dead, stopped, cut off from the file system, or busy in a library that holds Python's lock.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import permissions
from hpcrun.train.ranks.script_position import script_position
from hpcrun.train.ranks.waiting import current_wait
from hpcrun.train.settings import read_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.types import Json

DEFAULT_SECONDS = 5.0  # HPCRUN_HEARTBEAT_SECONDS: between two of them
MAX_WRITES_PER_SECOND = 100  # a second, of all ranks together: others use the file system too

_details: list[Callable[[], Json]] = []


class Heartbeat:
    """One rank's sign of life.

    Args:
        file: Where it goes, in a folder that is there.
        rank: This rank.
        host: Its host.
        interval: Seconds between two of them.
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

    def start_heartbeat(self, after: float) -> None:
        """Begin, and go on until `end`.

        Args:
            after: Seconds until the first one.
        """
        self._after = after
        self._thread.start_heartbeat()
        atexit.register(self.end)

    def end(self) -> None:
        """Say that this rank's script has ended, and nothing more."""
        if os.getpid() == self.identity["pid"]:  # a process that a script forks is not the rank
            self._stop.set()
            self._thread.join(1)
            self.write(ended=True)

    def _run(self) -> None:
        pause = self._after
        while not self._stop.wait(pause):
            with suppress(Exception):  # whatever went wrong, the next one may come
                self.write()
            pause = self.interval

    def write(self, *, ended: bool = False) -> None:
        """Replace the file.

        Args:
            ended: Whether this is the last one.
        """
        wait = current_wait()
        record = {**self.identity, "time": round(time.time(), 3), "ended": ended}
        if wait:
            record |= {"waits": str(wait), "waited_seconds": round(time.perf_counter() - wait.began, 3)}
        if not ended:
            record["at"] = script_position(deep=wait is None)
        for details in _details:
            with suppress(Exception):  # that the rank lives is told without its figures too
                record |= details()
        new = self.file.with_name(f".{self.file.name}.new")
        with suppress(OSError):  # a disk that is full is no reason to end a training
            with open(new, "w", encoding="utf-8", opener=permissions.opener) as opened:
                opened.write(json.dumps(record))
            new.replace(self.file)  # whoever reads it never sees half of it


def start_heartbeat(rank: int, hosts: Sequence[str], interval: float) -> None:
    """Begin to give signs of life, where this is a job.

    Args:
        rank: This rank.
        hosts: All ranks' hosts.
        interval: Seconds between two of them; 0 for none.
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
    # spread over the time between two, or all ranks would write at once
    Heartbeat(folder / f"rank-{rank}.json", rank, hosts[rank], interval).start_heartbeat(
        after=interval * rank / len(hosts)
    )


def set_details(details: Callable[[], Json]) -> None:
    """Let each sign of life say more, in place of what it said more before.

    Args:
        details: Returns the keys and values; called in another thread.
    """
    _details[:] = [details]


def read_heartbeat_seconds() -> float:
    """Return the user's pace, HPCRUN_HEARTBEAT_SECONDS.

    Raises:
        HpcrunError: It is no number of seconds.
    """
    return read_number("HPCRUN_HEARTBEAT_SECONDS", DEFAULT_SECONDS, "seconds", "5, or 0 for no heartbeats")
