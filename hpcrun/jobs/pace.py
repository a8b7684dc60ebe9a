"""How often a scheduler is asked while somebody waits: a busy cluster has hundreds who do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

SHARE = 0.1
"""A pause is this part of the time that nothing has changed."""

LONGEST_SECONDS = 30.0
"""Pauses grow no longer than that, where the site wants no longer ones; on this machine they do not grow at all."""


class Pace:
    """When it is time to ask again: at once, soon after a change, and less and less often while nothing changes.

    Args:
        runs: The jobs that are asked about; their sites say how much time must lie in between.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.least = max((run.poll_seconds for run in runs), default=0.0)
        self.longest = LONGEST_SECONDS if any(run.scheduler == "slurm" for run in runs) else 0.0
        self._asked = self._changed = -float("inf")

    def due(self, *, hurry: bool = False) -> bool:
        """Return whether it is time; if so, it counts as asked now.

        Args:
            hurry: Whether something has happened that makes an answer worth having: only what the site wants counts.
        """
        now = time.monotonic()
        quiet = 0.0 if hurry else self._asked - self._changed
        if now - self._asked < max(self.least, min(SHARE * quiet, self.longest)):
            return False
        self._asked = now
        return True

    def changed(self) -> None:
        """Ask more often again."""
        self._changed = self._asked
