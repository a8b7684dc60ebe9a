"""Observer of the state of one job, from its files and from the scheduler."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from hpcrun.errors import pluralize
from hpcrun.frozen import frozen
from hpcrun.jobs import heartbeats, states
from hpcrun.jobs.logs import UNKNOWN_JOB_TIMEOUT_SECONDS, Tail
from hpcrun.jobs.states import State
from hpcrun.resources import parse_time
from hpcrun.watch.format import format_duration
from hpcrun.watch.poller import Poller
from hpcrun.watch.rank_monitor import RankMonitor
from hpcrun.watch.training_progress import TrainingProgress, measure_progress
from hpcrun.watch.wait_messages import find_start

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from hpcrun.jobs.run_files import Epoch, ExitRecord
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.status_rows import StatusRow
    from hpcrun.watch.poller import PollResult
    from hpcrun.watch.rank_monitor import RankStatus
    from hpcrun.why.explanation import Explanation

LOG_LINES = 200
MAX_LISTED_WAITS = 2
"""Maximum number of collective calls listed in the deadlock warning."""

_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@frozen
class WatchState:
    """The observed state of one job.

    Attributes:
        run: The run directory.
        row: The job's row of ``hpcrun status``; None until the scheduler has answered.
        finished: Whether the state of the job is final.
        elapsed: The run time in s; None if unknown.
        explanation: The explanation why the job is pending; None if the job is not pending.
        epochs: The lines of ``metrics.jsonl``.
        progress: The progress of the training.
        ranks: The status of each rank; empty if the job is not running.
        log: The last lines of the job's log.
        start: The activity of rank 0 before it trains or prints, and its duration in s; None after that.
    """

    run: Run
    row: StatusRow | None
    finished: bool = False
    elapsed: float | None = None
    explanation: Explanation | None = None
    epochs: Sequence[Epoch] = ()
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    ranks: Sequence[RankStatus] = ()
    log: Sequence[str] = ()
    start: tuple[str, float] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the job is running."""
        return self.row is not None and not self.finished and self.row.state in {"RUNNING", "COMPLETING"}

    @property
    def seconds_to_limit(self) -> float | None:
        """Seconds until the time limit; None without a limit."""
        if self.row is None or self.row.limit is None or self.elapsed is None:
            return None
        return parse_time(self.row.limit) - self.elapsed

    @property
    def warnings(self) -> dict[str, str]:
        """Warnings by kind: ``limit`` (time limit too short), ``not finite`` (NaN in metrics), ``deadlock``."""
        warnings = {}
        seconds_left = self.seconds_to_limit if self._limit_ends_training else None
        seconds_needed = self.progress.seconds_left
        if seconds_left is not None and seconds_needed and seconds_needed > seconds_left:
            limit_text = f"ends in {format_duration(seconds_left)}" if seconds_left > 0 else "is over"
            warnings["limit"] = (
                f"at this pace it needs {format_duration(seconds_needed)} more, but its time limit {limit_text}"
            )
        if invalid_names := [name for name, value in self.progress.metrics.items() if value is None]:
            warnings["not finite"] = f"{', '.join(invalid_names)}: not a finite number (nan or inf)"
        if waiting_ranks := {rank.heartbeat.waits: rank for rank in reversed(self.ranks) if rank.trouble == "waiting"}:
            shown_ranks = sorted(waiting_ranks.values(), key=lambda rank: rank.heartbeat.rank)[:MAX_LISTED_WAITS]
            descriptions = [f"rank {rank.heartbeat.rank} {rank.description}" for rank in shown_ranks]
            ended_count = sum(rank.heartbeat.ended for rank in self.ranks)
            descriptions += [f"{pluralize(ended_count, 'rank')} ended"] if ended_count else []
            warnings["deadlock"] = f"no rank makes progress: {', '.join(descriptions)}"
        return warnings

    @property
    def _limit_ends_training(self) -> bool:
        """Whether the time limit would end the training, rather than requeue the job."""
        return self.is_running and self.progress.phase != "trained" and not self.run.spec.max_requeue


class Watcher:
    """An observer of one job; as a context manager, it stops polling on exit.

    Args:
        run: The job's run directory.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.poller = Poller(run)
        self.ranks = RankMonitor(run.directory)
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._log_readers = [_LogLines(log) for log in (run.log("err"), run.log("out")) if log]
        self._metrics: tuple[object, list[Epoch]] = (None, [])
        self._record: ExitRecord | None = None
        self._lost_since = 0.0  # time at which the scheduler first did not know the job; 0 if it knows the job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.poller.close()

    def update(self) -> WatchState:
        """Return the current state; data from the scheduler may be older than data from files.

        Raises:
            HpcrunError: The scheduler cannot be queried.
        """
        result, record = self.poller.result, self.run.exit_record()
        if self.poller.error:
            raise self.poller.error
        new_lines = [line for reader in self._log_readers for line in reader.read_new()]
        self.log.extend(new_lines)
        if record != self._record or (new_lines and result and (result.explanation or result.row.is_starting)):
            self._record = record
            self.poller.poll_now()
        row, finished = self._build_row(result, record)
        epochs = self._read_epochs()
        run, log = self.poller.run, tuple(self.log)
        state = WatchState(run, row, finished, epochs=epochs, progress=self._measure_progress(epochs), log=log)
        if result and row and row.elapsed and not row.as_of:
            elapsed = _parse_seconds(row.elapsed) + (time.monotonic() - result.query_time if state.is_running else 0.0)
            state = replace(state, elapsed=elapsed, explanation=None if finished else result.explanation)
        if state.is_running:
            state = replace(state, ranks=self.ranks.update(), start=find_start(run))
        return state

    def _build_row(self, result: PollResult | None, record: ExitRecord | None) -> tuple[StatusRow | None, bool]:
        """Return the job's row, and whether its state is final; the exit record takes precedence over the scheduler."""
        if result is None:
            return None, False
        row = result.row
        may_requeue = (
            record and "requeue" in self.run.scheduler.capabilities and (record.requeued or record.may_restart)
        )
        if record and record.ended and not may_requeue:
            final_state = states.state_from_record(record)
            name = row.state if row.finished else final_state.name
            final_row = replace(
                row, state=name, reason=final_state.reason, elapsed=final_state.elapsed, exit_code=record.exit_code
            )
            return final_row, True
        if not State(row.state, row.reason).lost:
            self._lost_since = 0.0
            return row, row.finished
        self._lost_since = self._lost_since or result.query_time
        return row, time.monotonic() - self._lost_since >= UNKNOWN_JOB_TIMEOUT_SECONDS

    def _measure_progress(self, epochs: Sequence[Epoch]) -> TrainingProgress:
        heartbeat = heartbeats.read_heartbeat(self.run.directory, 0)
        is_newer = heartbeats.read_newer_heartbeat(self.run.directory) is not None
        heartbeat_age = max(0.0, time.time() - heartbeat.time) if heartbeat else 0.0
        return measure_progress(epochs, heartbeat, is_newer=is_newer, heartbeat_age=heartbeat_age)

    def _read_epochs(self) -> list[Epoch]:
        """Return the lines of ``metrics.jsonl``; read the file only if it has changed."""
        try:
            file_stat = (self.run.directory / "metrics.jsonl").stat()
            version = (file_stat.st_ino, file_stat.st_size, file_stat.st_mtime_ns)
        except OSError:
            version = (0, 0, 0)
        if version != self._metrics[0]:
            self._metrics = version, self.run.metrics()
        return self._metrics[1]


class _LogLines:
    """A reader of the last lines of a growing log, without control sequences."""

    def __init__(self, file: Any) -> None:
        self.tail = Tail(file)
        self.tail.skip_to_last(LOG_LINES)
        self.partial_line = ""

    def read_new(self) -> list[str]:
        *lines, self.partial_line = (self.partial_line + self.tail.read_new()).split("\n")
        # a progress bar rewrites its line after a carriage return: keep only its last state
        return [_CONTROL_SEQUENCE.sub("", line.rstrip("\r").rpartition("\r")[2]).expandtabs() for line in lines]


def _parse_seconds(text: str) -> float:
    try:
        return float(parse_time(text))
    except ValueError:
        return 0.0
