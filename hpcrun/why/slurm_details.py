"""Details about a job from Slurm: who cancelled it, its expected start, and the number of jobs ahead of it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from hpcrun import nodelist
from hpcrun.errors import HpcrunError
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.why.evidence import Evidence
from hpcrun.write_access import name_of_uid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

TIMEOUT_SECONDS = 20.0  # if Slurm does not answer, the explanation lacks these details


def _query_table(run: Run, columns: int, *command: str) -> list[list[str]]:
    """Return a table from the Slurm cluster of a job; empty if Slurm does not answer."""
    return SlurmClient(run.slurm_conf).query_table(command, columns, timeout=TIMEOUT_SECONDS) or []


def find_cancellers(runs: Sequence[Run]) -> dict[Run, str]:
    """Return the user who cancelled each job; jobs without accounting and jobs that Slurm cancelled are left out.

    Args:
        runs: Jobs, or tasks of arrays; each Slurm cluster is queried once.
    """
    found: dict[Run, str] = {}
    for conf in dict.fromkeys(run.slurm_conf for run in runs):
        cancelled_runs = [run for run in runs if run.slurm_conf == conf]
        users = _find_cancellers_in_slurm(cancelled_runs)
        found |= {run: users[str(run.job_id)] for run in cancelled_runs if run.job_id in users}
    return found


def _find_cancellers_in_slurm(runs: Sequence[Run]) -> dict[str, str]:
    """Return the users who cancelled jobs of one Slurm cluster, by job id."""
    job_ids = ",".join(dict.fromkeys(str(run.job_id).partition("_")[0] for run in runs))
    table = ("--allocations", "--noheader", "--parsable2", "--format=JobID,State")
    who: dict[str, str] = {}
    for job, state in _query_table(runs[0], 2, "sacct", *table, f"--jobs={job_ids}"):
        named, cancelled = re.match(r"(\d+)(?:_\[?([^]%]*))?", job), re.fullmatch(r"CANCELLED by (\d+)", state)
        if not (named and cancelled):
            continue
        array, numbers = named.groups()
        with suppress(HpcrunError):  # Slurm abbreviates a long list of numbers with dots, which cannot be parsed
            # all tasks that never started share a row: 1234_[3-5,9%2]
            tasks = nodelist.expand_nodelist(f"[{numbers}]") if numbers else []
            who |= dict.fromkeys([f"{array}_{task}" for task in tasks] or [array], name_of_uid(int(cancelled[1])))
    return who


class PendingJob(NamedTuple):
    """A pending job, in the columns of squeue(1); columns that Slurm did not print are empty."""

    start: str
    partition: str
    priority: str
    dependency: str
    qos: str = ""
    account: str = ""
    nodes: str = ""
    cores: str = ""
    memory: str = ""
    gres: str = ""
    limit: str = ""
    reservation: str = ""


def query_pending_job(run: Run) -> PendingJob | None:
    """Return squeue's columns about a pending job; None if Slurm does not answer."""
    table = ("squeue", "--noheader", f"--jobs={run.job_id}", "--format=%S|%P|%Q|%E|%q|%a|%D|%C|%m|%b|%l|%v")
    columns = len(PendingJob._fields)
    rows = (
        SlurmClient(run.slurm_conf).query_table(table, columns, optional_columns=columns - 4, timeout=TIMEOUT_SECONDS)
        or []
    )
    return next((PendingJob(*row) for row in rows if row[2].isdigit()), None)


def describe_pending(run: Run, job: PendingJob, *, count_jobs_ahead: bool) -> list[Evidence]:
    """Return details about a pending job: its dependencies, expected start, and the number of jobs ahead of it.

    Args:
        run: The job.
        job: The job's columns in the output of squeue.
        count_jobs_ahead: Whether to count the pending jobs that Slurm will start earlier.
    """
    details = []
    if job.dependency not in {"", "(null)"}:
        details.append(Evidence("squeue", f"it depends on {job.dependency}"))
    if job.start not in {"", "N/A"}:
        details.append(Evidence("squeue --start", f"expected to start at {job.start}, unless the queue changes"))
    if count_jobs_ahead and (ahead := _count_jobs_ahead(run, job.partition, job.priority)) is not None:
        jobs = "1 pending job is" if ahead == 1 else f"{ahead or 'no'} pending jobs are"
        partition = f"partition {job.partition}"
        details.append(Evidence("squeue", f"{jobs} ahead of it in {partition}, of the jobs visible to you"))
    return details


def _count_jobs_ahead(run: Run, partition: str, priority: str) -> int | None:
    """Return the number of pending jobs with a higher priority, or equal priority and a lower id; None if unknown."""
    table = ("squeue", "--noheader", "--states=PENDING", f"--partition={partition}", "--format=%Q|%i")
    rows = _query_table(run, 2, *table)
    jobs = [(-int(value), int(found[0])) for value, job in rows if value.isdigit() and (found := re.match(r"\d+", job))]
    sort_key = -int(priority), int(re.split(r"\D", str(run.job_id))[0])
    return sum(job < sort_key for job in jobs) if jobs else None
