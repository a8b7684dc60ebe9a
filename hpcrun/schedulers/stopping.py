"""Stopping jobs gracefully: their ranks write a checkpoint and exit, or are killed after a grace period."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import record_trust
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import query_states, scheduler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.states import State

POLL_SECONDS = 0.1
REPEAT_SECONDS = 3.0
"""A script writes down at once that it was asked; one that has not by then is asked once more."""
_STATES_WITHOUT_RANKS = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
"""States in which a job has no ranks; one whose state is unknown may have some."""


@dataclass
class StoppedJob:
    """What became of one job that was to be stopped.

    Attributes:
        run: The job.
        outcome: What happened, in words; empty while its ranks are given time.
        error: Why it could not be stopped.
        checkpoints: Its checkpoints, and when each was written, at the beginning.
        requested_at: When its ranks were asked to end, by `time.monotonic`.
        repeated: Whether they were asked twice.
    """

    run: Run
    outcome: str = ""
    error: HpcrunError | None = None
    checkpoints: dict[str, float] = field(default_factory=dict)
    requested_at: float = 0.0
    repeated: bool = False

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be done for it."""
        return bool(self.outcome or self.error)

    @property
    def grace_seconds(self) -> float:
        """How long its ranks are given, as its site says."""
        return self.run.spec.site.restart.cancel_seconds


def stop(
    runs: Sequence[Run], report_progress: Callable[[Sequence[StoppedJob], float], bool] = lambda _left, _s: False
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
    pace = PollBackoff([each.run for each in stops])
    pace.is_due()
    told = query_states([each.run for each in stops])
    _cancel_waiting([each for each in stops if not each.finished and _has_no_ranks(told.get(each.run))])
    for each in stops:
        if not each.finished:
            _request_stop(each)
    begin = time.monotonic()
    hurry = False
    while left := [each for each in stops if not each.finished]:
        now = time.monotonic()
        if pace.is_due():
            told = query_states([each.run for each in left])
        for each in left:
            passed = now - each.requested_at
            record = each.run.end_record()
            state = told.get(each.run)
            if (record and not record.requeued) or (state and state.finished) or _has_no_ranks(state):
                wrote = "wrote a checkpoint and " * (_checkpoints(each.run) != each.checkpoints)
                by_itself = record.reason if record and not record.stopped else ""
                _cancel([each], by_itself or f"its ranks {wrote}ended after {passed:.0f} s")
            elif not each.run.exit_record() and not each.repeated and passed > REPEAT_SECONDS:
                each.repeated = True
                with suppress(HpcrunError):
                    scheduler_of(each.run).request_stop(each.run)
            elif hurry or passed > each.grace_seconds:
                _cancel([each], f"its ranks had not ended after {passed:.0f} s, and were killed")
        hurry = report_progress([each for each in left if not each.finished], time.monotonic() - begin) or hurry
        time.sleep(POLL_SECONDS)
    return stops


def _check_run(run: Run) -> StoppedJob:
    try:
        record_trust.require_trusted(run)  # what it names is sent signals
    except HpcrunError as error:
        return StoppedJob(run, error=error)
    return StoppedJob(run)


def _has_no_ranks(state: State | None) -> bool:
    return state is None or state.name in _STATES_WITHOUT_RANKS or state.lost


def _cancel_waiting(stops: Sequence[StoppedJob]) -> None:
    """Cancel jobs that have no ranks: with one call all that have the same to tell."""
    groups: dict[tuple[str, bool], list[StoppedJob]] = {}
    for each in stops:
        groups.setdefault((each.run.scheduler, each.run.start_count() > 0), []).append(each)
    for (_, again), together in groups.items():
        _cancel(together, "it waited to go on; its checkpoint is kept, if it wrote one" if again else "it did not run")


def _request_stop(each: StoppedJob) -> None:
    each.checkpoints, each.requested_at = _checkpoints(each.run), time.monotonic()
    try:
        asked = scheduler_of(each.run).request_stop(each.run)
    except HpcrunError as error:
        each.error = error
        return
    if not asked:
        _cancel([each], "at once: its ranks cannot be asked to end")


def _cancel(stops: Sequence[StoppedJob], outcome: str) -> None:
    """End what is left of jobs of one scheduler; those that have ended are as they should be."""
    try:
        scheduler_of(stops[0].run).cancel(*(Run(each.run.directory) for each in stops))
    except HpcrunError as error:
        if len(stops) > 1:  # one that cannot be cancelled keeps no other from it
            for each in stops:
                _cancel([each], outcome)
            return
        if not stops[0].run.end_record():
            stops[0].error = error
            return
    for each in stops:
        each.outcome = outcome


def _checkpoints(run: Run) -> dict[str, float]:
    """Return when each checkpoint was written; one that is being written has a name with a dot before it."""
    found = {}
    for file in run.directory.glob("checkpoints/[!.]*.npz"):
        with suppress(FileNotFoundError):
            found[file.name] = file.stat().st_mtime
    return found
