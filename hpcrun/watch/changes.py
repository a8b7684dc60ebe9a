"""Changes of a job as lines of text, for a log or a pipe."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hpcrun.jobs.progress_text import format_rate
from hpcrun.watch.format import format_duration, format_metrics, format_step_time
from hpcrun.watch.training_progress import positive_integer, positive_rate
from hpcrun.watch.wait_messages import StartMessages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.watch.rank_monitor import RankStatus
    from hpcrun.watch.watcher import WatchState

PROGRESS_INTERVAL = 60.0
"""The interval in s of progress lines within an epoch."""

MAX_RANKS = 8
"""Maximum number of ranks listed at once; the others are counted."""


class ChangeReporter:
    """Reports each change of a job once."""

    def __init__(self) -> None:
        self._state: tuple[str | None, ...] = ()
        self._epochs = 0
        self._last_line_time = time.monotonic()
        self._troubles: dict[int, str] = {}
        self._slow: set[int] = set()
        self._warned: set[str] = set()
        self._start = StartMessages()

    def describe_changes(self, watched: WatchState) -> list[str]:
        """Return a line for each change since the last call.

        Args:
            watched: The current state.
        """
        start = filter(None, [self._start.describe(watched.start)])
        found = [*self._state_changes(watched), *start, *self._training_changes(watched), *self._rank_changes(watched)]
        for kind, warning in watched.warnings.items():
            if kind not in self._warned:
                self._warned.add(kind)
                found.append(f"WARNING: {warning}")
        return found

    def _state_changes(self, watched: WatchState) -> Iterator[str]:
        row, why = watched.row, watched.why
        if row is None or watched.finished:  # the caller reports the end
            return
        reason = why.diagnosis.summary if why else row.reason
        state = (row.job_id, row.state, row.nodes, reason)
        if state == self._state:
            return
        self._state = state
        where = f" on {row.nodes}" if row.nodes else ""
        because = f": {reason}" if reason else ""
        yield f"job {row.job_id} ({watched.run.name}) is {row.plain_state}{where}{because}"
        for seen in why.diagnosis.evidence[1:] if why else ():
            yield f"  {seen.source}: {seen.line}"

    def _training_changes(self, watched: WatchState) -> Iterator[str]:
        epochs, progress, now = watched.epochs, watched.progress, time.monotonic()
        if len(epochs) < self._epochs:  # the job was started again
            self._epochs = 0
        new = epochs[self._epochs :] if self._epochs else epochs[-1:]
        for epoch in new:
            number = positive_integer(epoch.fit)
            place = (
                f"fit {number + 1}, " * bool(number)
                + f"epoch {epoch.epoch}"
                + (f"/{epoch.epochs}" if epoch.epochs else "")
            )
            rate = positive_rate(epoch.images_per_second)
            shown = format_metrics(epoch.metrics)
            yield "  ".join(filter(None, [place, shown, format_rate(rate) if rate else ""]))
        if new:
            self._epochs, self._last_line_time = len(epochs), now
        elif watched.is_running and progress.step and now - self._last_line_time >= PROGRESS_INTERVAL:
            self._last_line_time = now
            left = f"{format_duration(progress.seconds_left)} left" if progress.seconds_left else ""
            words = [progress.position, format_metrics(progress.metrics)]
            words += [format_rate(progress.images_per_second)] if progress.images_per_second else []
            yield "  ".join(filter(None, [*words, left]))

    def _rank_changes(self, watched: WatchState) -> Iterator[str]:
        changed = [rank for rank in watched.ranks if rank.trouble != self._troubles.get(rank.heartbeat.rank, "")]
        found = [line for rank in changed if (line := self._rank_change(rank))]
        yield from found[:MAX_RANKS]
        if len(found) > MAX_RANKS:
            yield f"  and {len(found) - MAX_RANKS} more ranks"

    def _rank_change(self, rank: RankStatus) -> str:
        """Describe the change of a rank; report slowness only once per rank, because it fluctuates."""
        number, trouble = rank.heartbeat.rank, rank.trouble
        before, self._troubles[number] = self._troubles.get(number, ""), trouble
        who = f"rank {number} on {rank.heartbeat.host}"
        if trouble == "slow":
            if number in self._slow:
                return ""
            self._slow.add(number)
            own = format_step_time(rank.heartbeat.own_seconds)
            return f"WARNING: {who} is {rank.description} of their own per step, it takes {own}"
        if trouble == "waiting":  # all ranks wait: that is a single warning
            return ""
        if trouble:
            heard = f"; its last heartbeat was {format_duration(rank.age)} ago" if trouble == "silent" else ""
            return f"WARNING: {who} is {rank.description}{heard}"
        return f"{who} is no longer {before}" if before not in {"slow", "waiting"} else ""
