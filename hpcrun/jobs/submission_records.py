"""Records of the submission, cancellation or refusal of a job before its script started."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.jobs import run_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.jobs.runs import Run


def write_submission(ids: Mapping[Run, str], **values: object) -> None:
    """Write ``submitted.json`` for runs that a scheduler has accepted.

    Args:
        ids: The job id of each run.
        **values: Further values for all runs; they override the default time (now) and host (this one).
    """
    common_values = {"submitted": time.time(), "host": os.uname().nodename, **values}
    for run, job_id in ids.items():
        paths.write_atomically(
            run.directory / "submitted.json", json.dumps({"job_id": job_id, **common_values}).encode()
        )
        run.__dict__.pop("submission", None)
    run_index.record_job_ids({run.directory: job_id for run, job_id in ids.items()})


def write_cancellation(run: Run) -> None:
    """Record in ``submitted.json`` that a job was cancelled before its script started; Slurm may purge the job soon."""
    file = run.directory / "submitted.json"
    with suppress(OSError, ValueError):  # a task of a sweep may lack the file, and only later queries need the record
        record = json.loads(file.read_text(encoding="utf-8")) | {"cancelled": time.time()}
        paths.write_atomically(file, json.dumps(record).encode())
        run.__dict__.pop("submission", None)


def write_refusal(run: Run, reason: str) -> None:
    """Write ``refused.json``: the scheduler has refused the job, and no job exists."""
    record = json.dumps({"reason": reason, "time": time.time()}).encode()
    for task in (run, *run.tasks):
        with suppress(OSError):  # without this file, later commands search for the job again
            paths.write_atomically(task.directory / "refused.json", record)
