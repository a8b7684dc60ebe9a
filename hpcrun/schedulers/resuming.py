"""Resuming stopped runs: the same script, run directory and log, from the last checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.errors import HpcrunError
from hpcrun.jobs import record_trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run


def find_stopped(runs: Sequence[Run]) -> list[Run]:
    """Return those runs that can be resumed: the stopped and failed tasks of a sweep.

    Args:
        runs: A run, or tasks of a sweep.

    Raises:
        HpcrunError: None of them can be resumed; says why.
    """
    states = schedulers.query_states(runs)
    stopped = [run for run in runs if run in states and states[run].finished and states[run].name != "COMPLETED"]
    if stopped:
        return stopped
    first = runs[0]
    job = f"job {first.job_id} ({first.name})"
    if first not in states:
        raise HpcrunError(f"{first.directory} was never submitted", hint=f"hpcrun resubmit {first.directory}")
    if states[first].name == "COMPLETED":
        raise HpcrunError(f"{job} has completed", hint=f"hpcrun resubmit {first.job_id} runs it again")
    hint = f"hpcrun status {first.job_id} shows its state; hpcrun cancel {first.job_id} stops it"
    raise HpcrunError(f"{job} is {states[first].name}: only a job that has ended can be resumed", hint=hint)


def resume(run: Run) -> str:
    """Start the script of a stopped run again, as another job of the same run.

    Args:
        run: One of `find_stopped`.

    Returns:
        The new job id.

    Raises:
        HpcrunError: Other users can write the run's files, or the scheduler refused the job.
    """
    record_trust.require_trusted(run)
    record_trust.require_trusted_script(run)
    return run.scheduler.resume(run)


def has_checkpoint(run: Run) -> bool:
    """Return whether hpcrun.train has written a checkpoint of a run."""
    return any((run.directory / "checkpoints").glob("*"))
