"""Jobs that run directories say nothing of: the submission was cut short, or the directory is gone."""

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

    from hpcrun.jobs.states import State

MAX_RUNS = 1000
"""So many of the newest runs without a job are looked at."""

SUBMISSION_TIMEOUT_SECONDS = 600
"""So long after a run was made, no submission of it is on its way any more."""


def recover_jobs() -> None:
    """Find and record the jobs of runs that have none, as far as anybody knows, and were not refused one.

    What submitted such a job was killed, or got no answer. Schedulers are asked only if there is such a run.
    """
    runs = [
        run
        for run in map(Run, index.list_without_job_id()[:MAX_RUNS])
        if (run.refusal is None or run.log_job_id) and run.spec.raw
    ]
    for run in runs:
        if run.job_id:  # its link could not be renamed
            index.record_job_ids({run.directory: run.job_id})
    for name in {run.scheduler for run in runs if not run.job_id}:
        _recover_jobs([run for run in runs if run.scheduler == name and not run.job_id])


def _recover_jobs(runs: Sequence[Run]) -> None:
    found = schedulers.scheduler_of(runs[0]).find_unrecorded(runs)
    for run in runs:
        facts = found.get(run.directory, {})
        with suppress(OSError):  # it is found another time, or its directory is gone
            made = (run.directory / "job.json").stat().st_mtime
            if facts:
                write_submission({run: facts.pop("job_id")}, submitted=made, **facts)
            elif facts is None and time.time() - made > SUBMISSION_TIMEOUT_SECONDS:
                write_refusal(run, "hpcrun was interrupted before there was a job")


def find_jobs_without_directory(gone: Sequence[Run]) -> dict[Run, State]:
    """Return the runs, of those whose directories are gone, whose jobs still wait or run, and their states.

    Args:
        gone: Runs as `hpcrun.jobs.run_selection` makes them where the directory is gone: they count as Slurm's.
    """
    known = [run for run in gone if run.job_id]
    if not known:
        return {}
    told = schedulers.query_states(known)
    here = local.running_scripts()
    found: dict[Run, State] = {}
    for run in known:
        state = told[run]
        if script := here.get(str(run.directory)):
            this_machine = replace(run.submission, start_time=script.start, host=os.uname().nodename)
            run.__dict__["submission"] = this_machine
            found[run] = schedulers.query_state(run)
        elif not state.finished and state.name != "UNKNOWN":
            found[run] = state
    return found
