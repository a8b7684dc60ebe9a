"""Polling of the scheduler in a thread, so that slow answers do not delay the display."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run
from hpcrun.jobs.status_rows import build_rows
from hpcrun.why.explanation import WAITING_STATES, explain

if TYPE_CHECKING:
    from hpcrun.jobs.status_rows import StatusRow
    from hpcrun.why.explanation import Explanation

EXPLAIN_INTERVAL = 60.0
"""The interval in s of queries for other pending jobs, which are expensive."""


@dataclass(frozen=True)
class PollResult:
    """The result of one poll.

    Attributes:
        row: The row of ``hpcrun status``.
        why: Why a pending job is pending.
        at: The time of the query, by `time.monotonic`.
    """

    row: StatusRow
    why: Explanation | None
    at: float


class Poller:
    """Polls the scheduler in a thread.

    Args:
        run: The job's run directory.

    Attributes:
        run: The run as last read; a job that resubmits itself gets another id.
        result: The latest result; None before the first one.
        error: The exception that ended polling, if any.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.result: PollResult | None = None
        self.error: Exception | None = None
        self._wake, self._closed = threading.Event(), False
        self._explained = 0.0  # when the current reason of a pending job was looked up
        threading.Thread(target=self._poll_loop, daemon=True).start()

    def poll_now(self) -> None:
        """Poll soon, because the job's files show a change."""
        self._wake.set()

    def close(self) -> None:
        """Stop polling."""
        self._closed = True
        self._wake.set()

    def _poll_loop(self) -> None:
        backoff = PollBackoff([self.run])
        while not self._closed:
            if backoff.is_due():
                before = self.result
                try:
                    self.result = self._poll()
                except Exception as error:  # noqa: BLE001 - `Watcher.update` raises it
                    self.error = error
                    return
                row = self.result.row
                if not before or (before.row.state, before.row.reason) != (row.state, row.reason):
                    backoff.reset()
            if self._wake.wait(backoff.seconds_left()):
                self._wake.clear()
                backoff.reset()

    def _poll(self) -> PollResult:
        now, before = time.monotonic(), self.result
        self.run = Run(self.run.directory)
        row = build_rows([self.run], schedulers.query_states)[0]
        if Run(self.run.directory).job_id != self.run.job_id:  # it resubmitted itself meanwhile
            return self._poll()
        if row.state not in WAITING_STATES:
            return PollResult(row, None, now)
        if before and before.why and before.row.reason == row.reason and now - self._explained < EXPLAIN_INTERVAL:
            return PollResult(row, before.why, now)
        self._explained = now
        return PollResult(row, explain(self.run), now)
