"""Polling of the scheduler in a thread, so that slow answers do not delay the display."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.frozen import frozen
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run
from hpcrun.jobs.status_rows import build_rows
from hpcrun.why.explanation import WAITING_STATES, explain

if TYPE_CHECKING:
    from hpcrun.jobs.status_rows import StatusRow
    from hpcrun.why.explanation import Explanation

EXPLAIN_INTERVAL = 60.0
"""The interval in s between two queries for the reason why a job is pending, which are expensive."""


@frozen
class PollResult:
    """The result of one poll.

    Attributes:
        row: The job's row of ``hpcrun status``.
        explanation: The explanation why the job is pending; None if the job is not pending.
        query_time: The time of the query, by `time.monotonic`.
    """

    row: StatusRow
    explanation: Explanation | None
    query_time: float


class Poller:
    """A thread that polls the scheduler.

    Args:
        run: The job's run directory.

    Attributes:
        run: The run; if the job resubmits itself, it is replaced by a run with the new job id.
        result: The latest result; None before the first result.
        error: The exception that ended polling, if any.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.result: PollResult | None = None
        self.error: Exception | None = None
        self._wake, self._closed = threading.Event(), False
        self._explained = 0.0  # time of the explanation of the current reason, by `time.monotonic`
        threading.Thread(target=self._poll_loop, daemon=True).start()

    def poll_now(self) -> None:
        """Poll as soon as the minimum interval allows, because the job's files show a change."""
        self._wake.set()

    def close(self) -> None:
        """Stop polling."""
        self._closed = True
        self._wake.set()

    def _poll_loop(self) -> None:
        backoff = PollBackoff([self.run])
        while not self._closed:
            if backoff.is_due():
                previous_result = self.result
                try:
                    self.result = self._poll()
                except Exception as error:  # noqa: BLE001 - `Watcher.update` raises it
                    self.error = error
                    return
                row = self.result.row
                if not previous_result or (previous_result.row.state, previous_result.row.reason) != (
                    row.state,
                    row.reason,
                ):
                    backoff.reset()
            if self._wake.wait(backoff.seconds_left()):
                self._wake.clear()
                backoff.reset()

    def _poll(self) -> PollResult:
        now, previous = time.monotonic(), self.result
        self.run = Run(self.run.directory)
        row = build_rows([self.run], schedulers.query_states)[0]
        if Run(self.run.directory).job_id != self.run.job_id:  # the job has resubmitted itself in the meantime
            return self._poll()
        if row.state not in WAITING_STATES:
            return PollResult(row, None, now)
        if (
            previous
            and previous.explanation
            and previous.row.reason == row.reason
            and now - self._explained < EXPLAIN_INTERVAL
        ):
            return PollResult(row, previous.explanation, now)
        self._explained = now
        return PollResult(row, explain(self.run), now)
