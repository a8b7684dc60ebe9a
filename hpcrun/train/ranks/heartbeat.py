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
from hpcrun.train.ranks.position import position
from hpcrun.train.ranks.waiting import innermost
from hpcrun.train.settings import number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.kinds import Json

SECONDS = 5.0  # HPCRUN_HEARTBEAT_SECONDS: between two of them
MOST_WRITES = 100  # a second, of all ranks together: others use the file system too

_telling: list[Callable[[], Json]] = []


class Heartbeat:
    """One rank's sign of life.

    Args:
        file: Where it goes, in a folder that is there.
        rank: This rank.
        host: Its host.
        every: Seconds between two of them.
    """

    def __init__(self, file: Path, rank: int, host: str, every: float) -> None:
        self.file = file
        self.facts = {
            "rank": rank,
            "host": host,
            "pid": os.getpid(),
            "every": every,
        }
        self.every = every
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="hpcrun's heartbeat", daemon=True)

    def start(self, after: float) -> None:
        """Begin, and go on until `end`.

        Args:
            after: Seconds until the first one.
        """
        self._after = after
        self._thread.start()
        atexit.register(self.end)

    def end(self) -> None:
        """Say that this rank's script has ended, and nothing more."""
        if os.getpid() == self.facts["pid"]:  # a process that a script forks is not the rank
            self._ended.set()
            self._thread.join(1)
            self.write(ended=True)

    def _go_on(self) -> None:
        pause = self._after
        while not self._ended.wait(pause):
            with suppress(Exception):  # whatever went wrong, the next one may come
                self.write()
            pause = self.every

    def write(self, *, ended: bool = False) -> None:
        """Replace the file.

        Args:
            ended: Whether this is the last one.
        """
        now = innermost()
        told = {**self.facts, "time": round(time.time(), 3), "ended": ended}
        if now:
            told |= {"waits": str(now), "waited_seconds": round(time.perf_counter() - now.began, 3)}
        if not ended:
            told["at"] = position(deep=now is None)
        for tell in _telling:
            with suppress(Exception):  # that the rank lives is told without its figures too
                told |= tell()
        new = self.file.with_name(f".{self.file.name}.new")
        with suppress(OSError):  # a disk that is full is no reason to end a training
            with open(new, "w", encoding="utf-8", opener=permissions.opener) as opened:
                opened.write(json.dumps(told))
            new.replace(self.file)  # whoever reads it never sees half of it


def start(rank: int, hosts: Sequence[str], every: float) -> None:
    """Begin to give signs of life, where this is a job.

    Args:
        rank: This rank.
        hosts: All ranks' hosts.
        every: Seconds between two of them; 0 for none.
    """
    run_dir = os.environ.get("HPCRUN_RUN_DIR")
    if not run_dir or not every:
        return
    folder = Path(run_dir, "heartbeats")
    try:
        permissions.make_folder(folder)
    except OSError:
        return
    every = max(every, len(hosts) / MOST_WRITES)
    # spread over the time between two, or all ranks would write at once
    Heartbeat(folder / f"rank-{rank}.json", rank, hosts[rank], every).start(after=every * rank / len(hosts))


def tells(tell: Callable[[], Json]) -> None:
    """Let each sign of life say more, in place of what it said more before.

    Args:
        tell: Returns the keys and values; called in another thread.
    """
    _telling[:] = [tell]


def seconds() -> float:
    """Return the user's pace, HPCRUN_HEARTBEAT_SECONDS.

    Raises:
        HpcrunError: It is no number of seconds.
    """
    return number("HPCRUN_HEARTBEAT_SECONDS", SECONDS, "seconds", "5, or 0 for no heartbeats")
