"""Descriptions of changes of a job as lines of text, for a log file or a pipe."""

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
"""The interval in s between two progress lines within an epoch."""

MAX_RANKS = 8
"""Maximum number of ranks that are listed; further ranks are only counted."""


class ChangeReporter:
    """A reporter of a job's changes, which reports each change once."""

    def __init__(self) -> None:
        self._state: tuple[str | None, ...] = ()
        self._epochs = 0
        self._last_line_time = time.monotonic()
        self._troubles: dict[int, str] = {}
        self._slow: set[int] = set()
        self._warned: set[str] = set()
        self._start = StartMessages()

    def describe_changes(self, watch_state: WatchState) -> list[str]:
        """Return a line for each change since the last call.

        Args:
            watch_state: The current state.
        """
        start = filter(None, [self._start.describe(watch_state.start)])
        lines = [
            *self._state_changes(watch_state),
            *start,
            *self._training_changes(watch_state),
            *self._rank_changes(watch_state),
        ]
        for kind, warning in watch_state.warnings.items():
            if kind not in self._warned:
                self._warned.add(kind)
                lines.append(f"WARNING: {warning}")
        return lines

    def _state_changes(self, watch_state: WatchState) -> Iterator[str]:
        row, explanation = watch_state.row, watch_state.explanation
        if row is None or watch_state.finished:  # the caller reports the end
            return
        reason = explanation.diagnosis.summary if explanation else row.reason
        state = (row.job_id, row.state, row.nodes, reason)
        if state == self._state:
            return
        self._state = state
        node_text = f" on {row.nodes}" if row.nodes else ""
        reason_text = f": {reason}" if reason else ""
        yield f"job {row.job_id} ({watch_state.run.name}) is {row.plain_state}{node_text}{reason_text}"
        for evidence in explanation.diagnosis.evidence[1:] if explanation else ():
            yield f"  {evidence.source}: {evidence.line}"

    def _training_changes(self, watch_state: WatchState) -> Iterator[str]:
        epochs, progress, now = watch_state.epochs, watch_state.progress, time.monotonic()
        if len(epochs) < self._epochs:  # the job was started again
            self._epochs = 0
        new_epochs = epochs[self._epochs :] if self._epochs else epochs[-1:]
        for epoch in new_epochs:
            fit_index = positive_integer(epoch.fit)
            position = (
                f"fit {fit_index + 1}, " * bool(fit_index)
                + f"epoch {epoch.epoch}"
                + (f"/{epoch.epochs}" if epoch.epochs else "")
            )
            rate = positive_rate(epoch.images_per_second)
            metrics_text = format_metrics(epoch.metrics)
            yield "  ".join(filter(None, [position, metrics_text, format_rate(rate) if rate else ""]))
        if new_epochs:
            self._epochs, self._last_line_time = len(epochs), now
        elif watch_state.is_running and progress.step and now - self._last_line_time >= PROGRESS_INTERVAL:
            self._last_line_time = now
            time_left = f"{format_duration(progress.seconds_left)} left" if progress.seconds_left else ""
            parts = [progress.position, format_metrics(progress.metrics)]
            parts += [format_rate(progress.images_per_second)] if progress.images_per_second else []
            yield "  ".join(filter(None, [*parts, time_left]))

    def _rank_changes(self, watch_state: WatchState) -> Iterator[str]:
        changed_ranks = [
            rank for rank in watch_state.ranks if rank.trouble != self._troubles.get(rank.heartbeat.rank, "")
        ]
        lines = [line for rank in changed_ranks if (line := self._rank_change(rank))]
        yield from lines[:MAX_RANKS]
        if len(lines) > MAX_RANKS:
            yield f"  and {len(lines) - MAX_RANKS} more ranks"

    def _rank_change(self, rank: RankStatus) -> str:
        """Describe the change of a rank; report slowness only once per rank, because it fluctuates."""
        rank_number, trouble = rank.heartbeat.rank, rank.trouble
        previous_trouble, self._troubles[rank_number] = self._troubles.get(rank_number, ""), trouble
        subject = f"rank {rank_number} on {rank.heartbeat.host}"
        if trouble == "slow":
            if rank_number in self._slow:
                return ""
            self._slow.add(rank_number)
            own_step_time = format_step_time(rank.heartbeat.own_seconds)
            return f"WARNING: {subject} is {rank.description} per step without waiting, it takes {own_step_time}"
        if trouble == "waiting":  # if all ranks wait, one warning is enough
            return ""
        if trouble:
            heartbeat_text = f"; its last heartbeat was {format_duration(rank.age)} ago" if trouble == "silent" else ""
            return f"WARNING: {subject} is {rank.description}{heartbeat_text}"
        return f"{subject} is no longer {previous_trouble}" if previous_trouble not in {"slow", "waiting"} else ""
