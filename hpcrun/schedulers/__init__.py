"""Schedulers, which run job scripts. Each scheduler has a module that is imported on use; see `hpcrun.scheduler`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State
    from hpcrun.scheduler import Scheduler


def group_by_scheduler(runs: Sequence[Run]) -> dict[Scheduler, list[Run]]:
    """Group runs by their scheduler."""
    runs_by_scheduler: dict[Scheduler, list[Run]] = {}
    for run in runs:
        runs_by_scheduler.setdefault(run.scheduler, []).append(run)
    return runs_by_scheduler


def query_states(runs: Sequence[Run]) -> dict[Run, State]:
    """Return the state of each submitted run, with one query to each scheduler."""
    states: dict[Run, State] = {}
    for scheduler, submitted_runs in group_by_scheduler([run for run in runs if run.job_id]).items():
        states |= scheduler.query_states(submitted_runs)
    return states


def query_state(run: Run) -> State:
    """Return the state of one run."""
    return query_states([run]).get(run) or run.unsubmitted_state


def submit(run: Run) -> Any:
    """Submit a run's ``job.sh``, and write ``submitted.json``; a run that has a job id is resumed.

    Returns:
        The submitit job.

    Raises:
        HpcrunError: The scheduler refused the job, is not installed, or did not answer.
    """
    return run.scheduler.executor(run).submit_script()


def submitit_job(run: Run) -> Any:
    """Return the submitit job of a run that this or another process submitted."""
    from hpcrun.schedulers.executors import ScriptJob  # the import of submitit takes 80 ms

    return ScriptJob(run.directory, run.job_id)
