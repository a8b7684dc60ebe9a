"""Recovery of jobs whose submission was not recorded, or whose run directory was removed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.jobs import index
from hpcrun.jobs.runs import Run, write_refusal, write_submission
from hpcrun.schedulers import local

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.states import State
    from hpcrun.scheduler import UnrecordedJob

MAX_RUNS = 1000
"""How many of the newest runs without a job id are checked."""

SUBMISSION_TIMEOUT_SECONDS = 600
"""After this time, a run without a job id has no job: no sbatch takes longer."""


def recover_jobs() -> None:
    """Find and record the jobs of runs whose submission was neither recorded nor refused.

    Their submission was killed, or got no answer. Schedulers are queried only if there is such a run.
    """
    runs = [
        run
        for run in map(Run, index.list_without_job_id()[:MAX_RUNS])
        if (run.refusal is None or run.log_job_id) and run.spec.is_recorded
    ]
    for run in runs:
        if run.job_id:  # the job id is recorded, but not in the name of the link
            index.record_job_ids({run.directory: run.job_id})
    for scheduler, lost in schedulers.group_by_scheduler([run for run in runs if not run.job_id]).items():
        _record_jobs(lost, scheduler.find_unrecorded(lost))


def _record_jobs(runs: Sequence[Run], found: dict[Path, UnrecordedJob | None]) -> None:
    for run in runs:
        job = found.get(run.directory)
        with suppress(OSError):  # a later command finds the job, or its directory is gone
            created = (run.directory / "job.json").stat().st_mtime
            if job:
                values: dict[str, object] = {"submitted": created, "command": job.command}
                values |= {"host": job.host} if job.host is not None else {}
                values |= {"start_time": job.start_time} if job.start_time is not False else {}
                write_submission({run: job.job_id}, **values)
            elif run.directory in found and time.time() - created > SUBMISSION_TIMEOUT_SECONDS:
                write_refusal(run, "hpcrun was interrupted before it submitted the job")


def find_jobs_without_directory(gone: Sequence[Run]) -> dict[Run, State]:
    """Return the runs without a directory whose jobs are pending or running, and their states.

    Args:
        gone: Runs whose directory was removed, from `hpcrun.jobs.run_selection`; their scheduler counts as Slurm.
    """
    runs = [run for run in gone if run.job_id]
    if not runs:
        return {}
    states = schedulers.query_states(runs)
    scripts = local.running_scripts()
    found: dict[Run, State] = {}
    for run in runs:
        state = states[run]
        if script := scripts.get(str(run.directory)):
            local_submission = replace(run.submission, start_time=script.start, host=os.uname().nodename)
            run.__dict__["submission"] = local_submission
            found[run] = schedulers.query_state(run)
        elif not state.finished and state.name != "UNKNOWN":
            found[run] = state
    return found
