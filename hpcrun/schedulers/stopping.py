"""Graceful stopping of jobs: the ranks write a checkpoint and exit, or are killed after a grace period."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import record_trust
from hpcrun.jobs.inferred_state import EPILOG_REASON, is_in_epilog
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run
from hpcrun.jobs.submission_records import write_cancellation
from hpcrun.schedulers import query_states

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.states import State
    from hpcrun.scheduler import Scheduler

POLL_SECONDS = 0.1
REPEAT_SECONDS = 3.0
"""Time in seconds after which a stop request is repeated if the job script has not recorded it."""
_STATES_WITHOUT_RANKS = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
"""Job states in which a job has no ranks."""


@dataclass
class StoppedJob:
    """The progress and the outcome of stopping one job.

    Attributes:
        run: The job.
        outcome: A message about how the job ended; empty during the grace period.
        error: The error if the job could not be stopped.
        checkpoints: The modification time of each checkpoint before the stop request, by file name.
        requested_at: The time of the stop request, by `time.monotonic`.
        repeated: Whether the stop request was repeated.
    """

    run: Run
    outcome: str = ""
    error: HpcrunError | None = None
    checkpoints: dict[str, float] = field(default_factory=dict)
    requested_at: float = 0.0
    repeated: bool = False

    @property
    def finished(self) -> bool:
        """Whether the job was stopped, or could not be stopped."""
        return bool(self.outcome or self.error)

    @property
    def grace_seconds(self) -> float:
        """Time in seconds between the stop request and SIGKILL, from the site file."""
        return self.run.spec.site.restart.cancel_seconds


def stop(
    runs: Sequence[Run],
    report_progress: Callable[[Sequence[StoppedJob], float], bool] = lambda _remaining, _seconds: False,
) -> list[StoppedJob]:
    """Cancel pending jobs at once; send SIGTERM to the ranks of running jobs, and SIGKILL after their grace period.

    Args:
        runs: The jobs.
        report_progress: Function that is called repeatedly with the jobs that still run and the elapsed seconds. If
            this function returns True, these jobs are killed.

    Returns:
        The outcome for each job.
    """
    stopped_jobs = [_check_run(Run(run.directory)) for run in runs]
    backoff = PollBackoff([job.run for job in stopped_jobs])
    backoff.is_due()
    states = query_states([job.run for job in stopped_jobs])
    _cancel_jobs_without_ranks([job for job in stopped_jobs if not job.finished and _has_no_ranks(states.get(job.run))])
    for job in stopped_jobs:
        if not job.finished and is_in_epilog(job.run, states.get(job.run)):
            _cancel([job], EPILOG_REASON)
        elif not job.finished:
            _request_stop(job)
    start = time.monotonic()
    must_kill = False
    while remaining_jobs := [job for job in stopped_jobs if not job.finished]:
        current_time = time.monotonic()
        if backoff.is_due():
            states = query_states([job.run for job in remaining_jobs])
        for job in remaining_jobs:
            elapsed_seconds = current_time - job.requested_at
            record = job.run.end_record()
            state = states.get(job.run)
            if (record and not record.requeued) or (state and state.finished) or _has_no_ranks(state):
                checkpoint_text = "wrote a checkpoint and " * (_read_checkpoint_times(job.run) != job.checkpoints)
                end_reason = record.reason if record and not record.stopped else ""
                _cancel([job], end_reason or f"its ranks {checkpoint_text}ended after {elapsed_seconds:.0f} s")
            elif not job.run.exit_record() and not job.repeated and elapsed_seconds > REPEAT_SECONDS:
                job.repeated = True
                with suppress(HpcrunError):
                    job.run.scheduler.request_stop(job.run)
            elif must_kill or elapsed_seconds > job.grace_seconds:
                _cancel([job], f"its ranks did not exit within {elapsed_seconds:.0f} s and were killed")
        remaining_jobs = [job for job in remaining_jobs if not job.finished]
        must_kill = report_progress(remaining_jobs, time.monotonic() - start) or must_kill
        time.sleep(POLL_SECONDS)
    return stopped_jobs


def _check_run(run: Run) -> StoppedJob:
    try:
        record_trust.require_trusted(run)  # check the records, because they name the processes that get signals
    except HpcrunError as error:
        return StoppedJob(run, error=error)
    return StoppedJob(run)


def _has_no_ranks(state: State | None) -> bool:
    return state is None or state.name in _STATES_WITHOUT_RANKS or state.lost


def _cancel_jobs_without_ranks(jobs: Sequence[StoppedJob]) -> None:
    """Cancel jobs that have no ranks, with one call of the scheduler for all jobs with the same outcome."""
    jobs_by_outcome: dict[tuple[Scheduler, bool], list[StoppedJob]] = {}
    for job in jobs:
        was_requeued = job.run.scheduler.has_queue and job.run.start_count() > 0
        jobs_by_outcome.setdefault((job.run.scheduler, was_requeued), []).append(job)
    for (_, was_requeued), group in jobs_by_outcome.items():
        requeue_outcome = "it was pending after a requeue; its checkpoint, if any, is kept"
        _cancel(group, requeue_outcome if was_requeued else "it did not run")


def _request_stop(job: StoppedJob) -> None:
    job.checkpoints, job.requested_at = _read_checkpoint_times(job.run), time.monotonic()
    handles_signals = job.run.handles_signals()
    try:
        is_received = job.run.scheduler.request_stop(job.run)
    except HpcrunError as error:
        job.error = error
        return
    if not is_received:
        kill_outcome = "its ranks were killed immediately: it cannot forward a signal to them"
        _cancel([job], kill_outcome if handles_signals else "its ranks had not started")


def _cancel(jobs: Sequence[StoppedJob], outcome: str) -> None:
    """Cancel jobs of one scheduler; jobs that have ended already cause no error."""
    try:
        jobs[0].run.scheduler.cancel(*(Run(job.run.directory) for job in jobs))
    except HpcrunError as error:
        if len(jobs) > 1:  # a job that cannot be cancelled must not keep other jobs running
            for job in jobs:
                _cancel([job], outcome)
            return
        if not jobs[0].run.end_record():
            jobs[0].error = error
            return
    for job in jobs:
        job.outcome = outcome
        if job.run.scheduler.uses_slurm and not job.run.start_count() and not job.run.exit_record():
            write_cancellation(job.run)


def _read_checkpoint_times(run: Run) -> dict[str, float]:
    """Return the modification time of each checkpoint, by file name; files with a leading dot are incomplete."""
    modification_times = {}
    for file in run.directory.glob("checkpoints/[!.]*"):
        with suppress(FileNotFoundError):
            modification_times[file.name] = file.stat().st_mtime
    return modification_times
