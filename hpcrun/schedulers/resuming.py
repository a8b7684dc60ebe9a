"""Resuming of stopped runs with the same script, run directory and log, from the last checkpoint."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.errors import HpcrunError
from hpcrun.jobs import inferred_state, record_trust, run_index, state_cache

EPILOG_SECONDS = 15.0
"""Maximum time in seconds to wait for the Epilog of a job that is to be resumed."""

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.runs import Run


def find_resumable_runs(runs: Sequence[Run], report: Callable[[str], None]) -> list[Run]:
    """Return the runs that can be resumed: stopped and failed runs; wait shortly for the Epilog of their jobs.

    Args:
        runs: A single run, or the tasks of a sweep.
        report: Function that is called with a line about the wait.

    Raises:
        HpcrunError: None of the runs can be resumed; the message contains the reason.
    """
    deadline = time.monotonic() + EPILOG_SECONDS
    states, has_reported = schedulers.query_states(runs), False
    while any(inferred_state.is_in_epilog(*item) for item in states.items()) and time.monotonic() < deadline:
        if not has_reported:
            report(f"waiting up to {EPILOG_SECONDS:.0f} s until Slurm has cleaned up the nodes (Epilog)")
            has_reported = True
        time.sleep(runs[0].poll_seconds)
        states = schedulers.query_states(runs)
    resumable_runs = [run for run in runs if run in states and states[run].finished and states[run].name != "COMPLETED"]
    if resumable_runs:
        return resumable_runs
    first_run = runs[0]
    job_text = f"job {first_run.job_id} ({first_run.name})"
    if first_run not in states:
        raise HpcrunError(f"{first_run.directory} was never submitted", hint=f"hpcrun resubmit {first_run.directory}")
    if states[first_run].name == "COMPLETED":
        raise HpcrunError(f"{job_text} has completed", hint=f"hpcrun resubmit {first_run.job_id} runs it again")
    if inferred_state.is_in_epilog(first_run, states[first_run]):
        hint = f"try again in some seconds; hpcrun status {first_run.job_id} shows when Slurm has finished"
        raise HpcrunError(f"{job_text} cannot be resumed yet: {inferred_state.EPILOG_REASON}", hint=hint)
    hint = f"hpcrun status {first_run.job_id} shows its state; hpcrun cancel {first_run.job_id} stops it"
    raise HpcrunError(f"{job_text} is {states[first_run].name}: only a job that has ended can be resumed", hint=hint)


def resume(run: Run) -> str:
    """Start the script of a stopped run again, as another job of the same run.

    Args:
        run: A run from `find_resumable_runs`.

    Returns:
        The new job id.

    Raises:
        HpcrunError: Other users can write the run's files, or the scheduler refused the job.
    """
    record_trust.require_trusted(run)
    record_trust.require_trusted_script(run)
    job_id: str = schedulers.submit(run).job_id
    run_index.record_job_ids({run.directory: job_id})  # also if the script itself has recorded its id
    state_cache.forget([run.directory.name])
    return job_id


def has_checkpoint(run: Run) -> bool:
    """Return whether hpcrun.train, or a workload, has written a checkpoint of a run."""
    return any((run.directory / "checkpoints").glob("*"))
