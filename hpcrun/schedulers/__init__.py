"""Schedulers, which run job scripts: one module each, imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State


class Scheduler(Protocol):
    """The functions of a scheduler's module."""

    def find_unrecorded(self, runs: Sequence[Run]) -> dict[Path, dict[str, Any] | None]:
        """Find the jobs of runs whose submission was not recorded.

        Returns:
            For each run directory, the arguments of `hpcrun.jobs.runs.write_submission`, or None if the run has no job.
            Runs whose job is uncertain are left out.
        """

    def query_states(self, runs: Sequence[Run]) -> dict[Run, State]:
        """Return the state of each submitted run, by one query for all."""

    def request_stop(self, run: Run) -> bool:
        """Request the ranks of a job to write a checkpoint and exit; return whether a process received the signal."""

    def cancel(self, *runs: Run) -> None:
        """End jobs and all their ranks immediately."""


_MODULES = {"slurm": "hpcrun.schedulers.slurm", "local": "hpcrun.schedulers.local"}


def scheduler_of(run: Run) -> Scheduler:
    """Return the scheduler of a run."""
    return cast("Scheduler", import_module(_MODULES[run.scheduler]))


def query_states(runs: Sequence[Run]) -> dict[Run, State]:
    """Return the state of each submitted run, by one query of each scheduler."""
    found: dict[Run, State] = {}
    for name in sorted({run.scheduler for run in runs}):
        submitted_runs = [run for run in runs if run.scheduler == name and run.job_id]
        found |= scheduler_of(submitted_runs[0]).query_states(submitted_runs) if submitted_runs else {}
    return found


def query_state(run: Run) -> State:
    """Return the state of one run."""
    return query_states([run]).get(run) or run.unsubmitted_state


def submitit_executor(run: Run) -> Any:
    """Return the submitit executor of a run. The import of submitit takes 80 ms, so it happens here."""
    from hpcrun.schedulers.executors import EXECUTORS

    return EXECUTORS[run.scheduler](run.directory)


def submit(run: Run) -> Any:
    """Submit a run's ``job.sh``, and write ``submitted.json``.

    Returns:
        The submitit job.

    Raises:
        HpcrunError: The scheduler refused the job, is not installed, or did not answer.
    """
    return submitit_executor(run).submit_script()


def submitit_job(run: Run) -> Any:
    """Return the submitit job of a run that this or another process submitted."""
    return submitit_executor(run).job_class(run.directory, run.job_id)
