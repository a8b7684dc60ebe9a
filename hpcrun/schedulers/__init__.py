"""What runs job scripts. Each scheduler is a module of its own, imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State


class Scheduler(Protocol):
    """What every scheduler's module does."""

    def find_unrecorded(self, runs: Sequence[Run]) -> dict[Path, dict[str, Any] | None]:
        """Return what `Run.submitted` takes of runs that it was not told of; None: no job. Left out: nobody knows."""

    def query_states(self, runs: Sequence[Run]) -> dict[Run, State]:
        """Return the state of each submitted run, with one query however many there are."""

    def request_stop(self, run: Run) -> bool:
        """Ask a job's ranks to end by themselves, with a checkpoint; False where there is nobody to ask."""

    def cancel(self, *runs: Run) -> None:
        """End jobs with all their ranks now."""


_MODULES = {"slurm": "hpcrun.schedulers.slurm", "local": "hpcrun.schedulers.local"}


def scheduler_of(run: Run) -> Scheduler:
    """Return the scheduler of a run."""
    return cast("Scheduler", import_module(_MODULES[run.scheduler]))


def query_states(runs: Sequence[Run]) -> dict[Run, State]:
    """Return the state of each submitted run: one query per scheduler."""
    found: dict[Run, State] = {}
    for name in sorted({run.scheduler for run in runs}):
        together = [run for run in runs if run.scheduler == name and run.job_id]
        found |= scheduler_of(together[0]).query_states(together) if together else {}
    return found


def query_state(run: Run) -> State:
    """Return the state of one run."""
    return query_states([run]).get(run) or run.unsubmitted_state


def submitit_executor(run: Run) -> Any:
    """Return the submitit executor of a run directory, which is imported here and not before: it takes 80 ms."""
    from hpcrun.schedulers.executors import EXECUTORS

    return EXECUTORS[run.scheduler](run.directory)


def submit(run: Run) -> Any:
    """Submit a run directory's ``job.sh``, and write ``submitted.json``.

    Returns:
        submitit's job.

    Raises:
        HpcrunError: The scheduler refused it, is not there, or did not answer.
    """
    return submitit_executor(run).submit_script()


def submitit_job(run: Run) -> Any:
    """Return submitit's job of a run that was submitted, in this process or another."""
    return submitit_executor(run).job_class(run.directory, run.job_id)
