"""Recovery of jobs whose submission was not recorded, or whose run directory was removed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.jobs import run_index
from hpcrun.jobs.runs import Run
from hpcrun.jobs.submission_records import write_refusal, write_submission
from hpcrun.schedulers import local

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.states import State
    from hpcrun.scheduler import UnrecordedJob

MAX_RUNS = 1000
"""Maximum number of runs without a job id that are checked, the newest first."""

SUBMISSION_TIMEOUT_SECONDS = 600
"""Time in seconds after which a run without a job id certainly has no job, because no sbatch takes longer."""


def recover_jobs() -> None:
    """Find and record the jobs of runs whose submission was neither recorded nor refused.

    A submission is neither recorded nor refused if hpcrun was killed, or if the scheduler did not answer.
    """
    runs = [
        run
        for run in map(Run, run_index.list_directories_without_job_id()[:MAX_RUNS])
        if (run.refusal is None or run.log_job_id) and run.spec.is_recorded
    ]
    for run in runs:
        if run.job_id:  # the job id is recorded, but not in the name of the link
            run_index.record_job_ids({run.directory: run.job_id})
    for scheduler, unrecorded_runs in schedulers.group_by_scheduler([run for run in runs if not run.job_id]).items():
        _record_jobs(unrecorded_runs, scheduler.find_unrecorded(unrecorded_runs))


def _record_jobs(runs: Sequence[Run], jobs: dict[Path, UnrecordedJob | None]) -> None:
    for run in runs:
        job = jobs.get(run.directory)
        with suppress(OSError):  # a later command records the job, unless its directory was removed
            creation_time = (run.directory / "job.json").stat().st_mtime
            if job:
                job_facts: dict[str, object] = {"submitted": creation_time, "command": job.command}
                job_facts |= {"host": job.host} if job.host is not None else {}
                job_facts |= {"start_time": job.start_time} if job.start_time is not False else {}
                write_submission({run: job.job_id}, **job_facts)
            elif run.directory in jobs and time.time() - creation_time > SUBMISSION_TIMEOUT_SECONDS:
                write_refusal(run, "hpcrun was interrupted before it submitted the job")


def find_jobs_without_directory(removed_runs: Sequence[Run]) -> dict[Run, State]:
    """Return the states of pending and running jobs whose run directory was removed.

    Args:
        removed_runs: Runs whose directory was removed, from `hpcrun.jobs.run_selection`; they count as Slurm jobs.
    """
    runs = [run for run in removed_runs if run.job_id]
    if not runs:
        return {}
    states = schedulers.query_states(runs)
    scripts = local.running_scripts()
    states_of_jobs: dict[Run, State] = {}
    for run in runs:
        state = states[run]
        if script := scripts.get(str(run.directory)):
            local_submission = replace(run.submission, start_time=script.start, host=os.uname().nodename)
            run.__dict__["submission"] = local_submission
            states_of_jobs[run] = schedulers.query_state(run)
        elif not state.finished and state.name != "UNKNOWN":
            states_of_jobs[run] = state
    return states_of_jobs
