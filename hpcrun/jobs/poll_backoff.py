"""Backoff of polling: the intervals at which commands query the scheduler while they wait for jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from hpcrun.jobs.runs import Run

BACKOFF_FRACTION = 0.1
"""The poll interval, as a fraction of the time since the last change."""


class PollBackoff:
    """A schedule of polls: at once, soon after a change, and less and less often while nothing changes.

    Args:
        runs: The polled jobs; their sites set the minimum interval, their schedulers the maximum.
    """

    def __init__(self, runs: Collection[Run]) -> None:
        self._runs = runs
        self._last_poll = self._last_change = -float("inf")

    def seconds_left(self, *, urgent: bool = False) -> float:
        """Return the time until the next poll.

        Args:
            urgent: Whether to wait no longer than the sites' minimum interval, because a file shows a change.
        """
        minimum = max((run.poll_seconds for run in self._runs), default=0.0)
        maximum = max((run.scheduler.max_poll_seconds for run in self._runs), default=0.0)
        unchanged_seconds = 0.0 if urgent else self._last_poll - self._last_change
        return self._last_poll + max(minimum, min(BACKOFF_FRACTION * unchanged_seconds, maximum)) - time.monotonic()

    def is_due(self, *, urgent: bool = False) -> bool:
        """Return whether a poll is due; if so, start the next interval."""
        if self.seconds_left(urgent=urgent) > 0:
            return False
        self.start_interval()
        return True

    def start_interval(self) -> None:
        """Start the next interval, because a poll begins."""
        self._last_poll = time.monotonic()

    def reset(self) -> None:
        """Restart with short intervals after a change."""
        self._last_change = time.monotonic()
