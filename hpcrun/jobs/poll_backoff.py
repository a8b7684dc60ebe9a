"""Backoff of polling: how often commands that wait for jobs query the scheduler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

BACKOFF_FRACTION = 0.1
"""The poll interval, as a fraction of the time since the last change."""


class PollBackoff:
    """Decides when to poll: at once, soon after a change, and less and less often while nothing changes.

    Args:
        runs: The polled jobs; their sites set the minimum interval, their schedulers the maximum.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.min_interval = max((run.poll_seconds for run in runs), default=0.0)
        self.max_interval = max((run.scheduler.max_poll_seconds for run in runs), default=0.0)
        self._last_poll = self._last_change = -float("inf")

    def is_due(self, *, urgent: bool = False) -> bool:
        """Return whether a poll is due; if so, start the next interval.

        Args:
            urgent: Whether to wait no longer than the site's minimum interval, because a file shows a change.
        """
        now = time.monotonic()
        quiet = 0.0 if urgent else self._last_poll - self._last_change
        if now - self._last_poll < max(self.min_interval, min(BACKOFF_FRACTION * quiet, self.max_interval)):
            return False
        self._last_poll = now
        return True

    def reset(self) -> None:
        """Restart with short intervals after a change."""
        self._last_change = self._last_poll
