"""Stopping jobs gracefully: their ranks write a checkpoint and exit, or are killed after a grace period."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import record_trust
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run, write_cancellation
from hpcrun.schedulers import query_states

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.states import State
    from hpcrun.scheduler import Scheduler

POLL_SECONDS = 0.1
REPEAT_SECONDS = 3.0
"""A script records the request at once. If it has not after this time, the request is repeated."""
_STATES_WITHOUT_RANKS = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
"""States in which a job has no ranks; a job in an unknown state may have ranks."""


@dataclass
class StoppedJob:
    """The progress and outcome of stopping one job.

    Attributes:
        run: The job.
        outcome: How the job ended, for the user; empty during the grace period.
        error: Why the job could not be stopped.
        checkpoints: Its checkpoints before the request, and when each was written.
        requested_at: When the ranks were requested to exit, by `time.monotonic`.
        repeated: Whether the request was repeated.
    """

    run: Run
    outcome: str = ""
    error: HpcrunError | None = None
    checkpoints: dict[str, float] = field(default_factory=dict)
    requested_at: float = 0.0
    repeated: bool = False

    @property
    def finished(self) -> bool:
        """Whether the job is stopped, or cannot be."""
        return bool(self.outcome or self.error)

    @property
    def grace_seconds(self) -> float:
        """Seconds between the request and SIGKILL, as set by the site."""
        return self.run.spec.site.restart.cancel_seconds


def stop(
    runs: Sequence[Run],
    report_progress: Callable[[Sequence[StoppedJob], float], bool] = lambda _remaining, _seconds: False,
) -> list[StoppedJob]:
    """Cancel pending jobs at once; send SIGTERM to the ranks of running ones, and SIGKILL after their grace period.

    Args:
        runs: The jobs.
        report_progress: Called repeatedly with the jobs that still run and the seconds since the begin. If it returns
            True, these jobs are killed.

    Returns:
        One result for each job.
    """
    stops = [_check_run(Run(run.directory)) for run in runs]
    backoff = PollBackoff([job.run for job in stops])
    backoff.is_due()
    states = query_states([job.run for job in stops])
    _cancel_waiting([job for job in stops if not job.finished and _has_no_ranks(states.get(job.run))])
    for job in stops:
        if not job.finished:
            _request_stop(job)
    begin = time.monotonic()
    kill_now = False
    while remaining := [job for job in stops if not job.finished]:
        now = time.monotonic()
        if backoff.is_due():
            states = query_states([job.run for job in remaining])
        for job in remaining:
            elapsed = now - job.requested_at
            record = job.run.end_record()
            state = states.get(job.run)
            if (record and not record.requeued) or (state and state.finished) or _has_no_ranks(state):
                wrote = "wrote a checkpoint and " * (_checkpoints(job.run) != job.checkpoints)
                own_reason = record.reason if record and not record.stopped else ""
                _cancel([job], own_reason or f"its ranks {wrote}ended after {elapsed:.0f} s")
            elif not job.run.exit_record() and not job.repeated and elapsed > REPEAT_SECONDS:
                job.repeated = True
                with suppress(HpcrunError):
                    job.run.scheduler.request_stop(job.run)
            elif kill_now or elapsed > job.grace_seconds:
                _cancel([job], f"its ranks did not exit within {elapsed:.0f} s and were killed")
        remaining = [job for job in remaining if not job.finished]
        kill_now = report_progress(remaining, time.monotonic() - begin) or kill_now
        time.sleep(POLL_SECONDS)
    return stops


def _check_run(run: Run) -> StoppedJob:
    try:
        record_trust.require_trusted(run)  # signals are sent to the processes that its records name
    except HpcrunError as error:
        return StoppedJob(run, error=error)
    return StoppedJob(run)


def _has_no_ranks(state: State | None) -> bool:
    return state is None or state.name in _STATES_WITHOUT_RANKS or state.lost


def _cancel_waiting(stops: Sequence[StoppedJob]) -> None:
    """Cancel jobs that have no ranks, by one call for all with the same outcome."""
    groups: dict[tuple[Scheduler, bool], list[StoppedJob]] = {}
    for job in stops:
        groups.setdefault((job.run.scheduler, job.run.start_count() > 0), []).append(job)
    for (_, has_started), group in groups.items():
        requeued = "it was pending again after a requeue; its checkpoint, if any, is kept"
        _cancel(group, requeued if has_started else "it did not run")


def _request_stop(job: StoppedJob) -> None:
    job.checkpoints, job.requested_at = _checkpoints(job.run), time.monotonic()
    handles_signals = job.run.handles_signals()
    try:
        received = job.run.scheduler.request_stop(job.run)
    except HpcrunError as error:
        job.error = error
        return
    if not received:
        killed = "its ranks were killed immediately: it cannot forward a signal to them"
        _cancel([job], killed if handles_signals else "its ranks had not started")


def _cancel(stops: Sequence[StoppedJob], outcome: str) -> None:
    """End jobs of one scheduler; no error for jobs that have ended already."""
    try:
        stops[0].run.scheduler.cancel(*(Run(job.run.directory) for job in stops))
    except HpcrunError as error:
        if len(stops) > 1:  # one job that cannot be cancelled must not keep the others running
            for job in stops:
                _cancel([job], outcome)
            return
        if not stops[0].run.end_record():
            stops[0].error = error
            return
    for job in stops:
        job.outcome = outcome
        if job.run.scheduler.uses_slurm and not job.run.start_count() and not job.run.exit_record():
            write_cancellation(job.run)


def _checkpoints(run: Run) -> dict[str, float]:
    """Return when each checkpoint was written; names with a leading dot are incomplete."""
    found = {}
    for file in run.directory.glob("checkpoints/[!.]*.npz"):
        with suppress(FileNotFoundError):
            found[file.name] = file.stat().st_mtime
    return found
