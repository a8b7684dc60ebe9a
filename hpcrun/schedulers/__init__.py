"""What runs job scripts. Each scheduler is a module of its own, imported only when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State


class Queue(Protocol):
    """What every scheduler's queue module answers, without importing submitit."""

    def states(self, runs: Sequence[Run]) -> dict[str, State]:
        """Return the state of each run, by its job id, with one query however many there are."""

    def cancel(self, run: Run) -> None:
        """End a job with all its ranks."""


_QUEUES = {"slurm": "hpcrun.schedulers.squeue", "local": "hpcrun.schedulers.processes"}
_EXECUTORS = {"slurm": "hpcrun.schedulers.slurm", "local": "hpcrun.schedulers.local"}


def queue(name: str) -> Queue:
    """Return a scheduler's queue: states and cancelling."""
    return cast("Queue", import_module(_QUEUES[name]))


def executor(name: str) -> Any:
    """Return a scheduler's submitit executor class; its ``submit_script()`` submits a run directory's ``job.sh``."""
    return import_module(_EXECUTORS[name]).Executor


def states(runs: Sequence[Run]) -> dict[str, State]:
    """Return the state of each submitted run by its job id: one query per scheduler."""
    found: dict[str, State] = {}
    for name in sorted({run.scheduler for run in runs}):
        found |= queue(name).states([run for run in runs if run.scheduler == name and run.job_id])
    return found


def state(run: Run) -> State:
    """Return the state of one submitted run."""
    return states([run])[run.job_id or ""]


def job(run: Run) -> Any:
    """Return submitit's job of a run that was submitted, in this process or another."""
    return executor(run.scheduler).job_class(run.directory, run.job_id)
