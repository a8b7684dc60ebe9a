"""What the scheduler says of a job, asked in a thread: a slow answer keeps nobody from looking at the job's files."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.jobs.rows import rows
from hpcrun.jobs.runs import Run
from hpcrun.why.explanation import WAITING_STATES, explain

if TYPE_CHECKING:
    from hpcrun.jobs.rows import Row
    from hpcrun.why.explanation import Explanation

FIRST = {"slurm": 5.0, "local": 1.0}
"""Seconds after which it is asked again, where something has changed."""

LATER = {"slurm": 60.0, "local": 2.0}
"""The longest that these grow to, where nothing changes."""

GROWTH = 1.5
WHY_SECONDS = 60.0
"""So often it is asked about other pending jobs, which are many."""


@dataclass(frozen=True)
class Told:
    """An answer.

    Attributes:
        row: What ``hpcrun status`` tells.
        why: Why a job that waits does so.
        at: When it was asked, by `time.monotonic`.
    """

    row: Row
    why: Explanation | None
    at: float


class Asking:
    """Asks at once, then less and less often while nothing changes.

    Args:
        run: The job's run directory.

    Attributes:
        run: The same, as it was read last: a job that submits itself again goes on under another id.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.told: Told | None = None
        self.error: Exception | None = None
        self._hurry, self._closed = threading.Event(), False
        threading.Thread(target=self._go_on, daemon=True).start()

    def hurry(self) -> None:
        """Ask again now: files show that something has changed."""
        self._hurry.set()

    def close(self) -> None:
        """Ask no more."""
        self._closed = True
        self._hurry.set()

    def _go_on(self) -> None:
        least, first, longest = self.run.poll_seconds, FIRST[self.run.scheduler], LATER[self.run.scheduler]
        pause, first, longest = 0.0, max(first, least), max(longest, least)
        while not self._closed:
            before = self.told
            try:
                self.told = self._ask()
            except Exception as error:  # noqa: BLE001 - who watches raises it
                self.error = error
                return
            same = before and (before.row.state, before.row.reason) == (self.told.row.state, self.told.row.reason)
            pause = min(pause * GROWTH, longest) if same else first
            asked = time.monotonic()
            if self._hurry.wait(pause):
                pause = first
                self._hurry.clear()
                while not self._closed and (early := asked + least - time.monotonic()) > 0:
                    self._hurry.wait(early)
                    self._hurry.clear()

    def _ask(self) -> Told:
        now, before = time.monotonic(), self.told
        self.run = Run(self.run.directory)
        row = rows([self.run], schedulers.query_states)[0]
        if Run(self.run.directory).job_id != self.run.job_id:  # it has submitted itself again meanwhile
            return self._ask()
        if row.state not in WAITING_STATES:
            return Told(row, None, now)
        if before and before.why and before.row.reason == row.reason and now - before.at < WHY_SECONDS:
            return Told(row, before.why, now)
        return Told(row, explain(self.run), now)
