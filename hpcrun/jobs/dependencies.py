"""Job dependencies (``--dependency``) with job names in place of ids."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run

_TYPES = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok", "singleton")
"""Slurm's dependency types (sbatch(1), ``--dependency``)."""

_JOB_ID = re.compile(r"\d+(?:_\d+|_\*)?(?:\+\d+)?")


def resolve_dependency(text: str, conf: str | None) -> str:
    """Return a dependency for sbatch: replace job names and ``last`` by job ids.

    Args:
        text: Such as ``afterok:1234``, ``afterok:lenet5:last``, ``after:last+5,afternotok:1234``.
        conf: The slurm.conf of the cluster that the job is submitted to, if known.

    Raises:
        HpcrunError: The type or the run does not exist, or the job is not in that cluster.
    """
    parts = re.split(r"([,?])", text)  # all must be satisfied, or any
    return "".join(part if number % 2 else _resolve_condition(part, conf) for number, part in enumerate(parts))


def parse_dependency(text: str) -> list[tuple[str, str]]:
    """Return the type and job id of each condition in a dependency for sbatch.

    Args:
        text: Such as ``afterok:12:13,after:14+5``.
    """
    found = []
    for part in re.split(r"[,?]", text):
        kind, *jobs = part.split(":")
        found += [(kind.lower(), job.partition("+")[0].removesuffix("_*")) for job in jobs]
    return found


def _resolve_condition(part: str, conf: str | None) -> str:
    kind, *jobs = part.split(":")
    if kind.lower() not in _TYPES or bool(jobs) == (kind.lower() == "singleton") or not all(jobs):
        like = closest_match(kind, list(_TYPES))
        hint = "for example afterok:1234, afterany:last, afternotok:lenet5 or singleton (sbatch(1), --dependency)"
        fixed = re.sub(r"[= ]+", ":", part.strip())
        if fixed != part and fixed.partition(":")[0].lower() in _TYPES and fixed.partition(":")[2]:
            hint = f"did you mean --dependency={fixed}?"
        elif like and like != kind.lower():
            hint = f"did you mean {like}?"
        elif not jobs and _JOB_ID.fullmatch(kind):
            hint = f"--dependency=afterok:{kind} waits until it has succeeded, afterany:{kind} until it has ended"
        raise HpcrunError(f"--dependency={part}: expected TYPE:JOB", hint=hint)
    return ":".join([kind, *(job if _JOB_ID.fullmatch(job) else _resolve_job_id(job, conf) for job in jobs)])


def _resolve_job_id(word: str, conf: str | None) -> str:
    from hpcrun.jobs import run_selection  # most jobs depend on none

    name, plus, minutes = word.partition("+")
    runs = run_selection.select_runs([name])
    if len(runs) > 1 and not run_selection.names_one_run(name):
        raise HpcrunError(f"--dependency: {name} matches {len(runs)} jobs", hint="name each of them: afterok:12:13:14")
    if not runs[0].scheduler.uses_slurm or not runs[0].job_id:
        what = "was never submitted" if not runs[0].job_id else "is not a Slurm job"
        raise HpcrunError(
            f"--dependency: {runs[0].name} ({runs[0].directory}) {what}", hint=run_selection.SELECTION_HINT
        )
    if _is_in_other_slurm(runs[0], conf):
        what = f"is a job of another cluster ({runs[0].slurm_conf}), not of this one ({conf})"
        raise HpcrunError(f"--dependency: {runs[0].name} {what}", hint="hpcrun status shows the sites of jobs")
    chained = runs[0].spec.max_requeue and not runs[0].spec.site.restart.requeue
    if chained or runs[0].spec.memory_retries:
        what = "resubmits itself under another id, and Slurm knows only its current id"
        raise HpcrunError(f"--dependency: {runs[0].name} {what}", hint=f"use that id: {runs[0].job_id}")
    job_id = runs[0].job_id
    return f"{job_id.partition('_')[0] if len(runs) > 1 else job_id}{plus}{minutes}"


def _is_in_other_slurm(run: Run, conf: str | None) -> bool:
    """Return whether a run's job is known to be in another cluster than the new job."""
    its = run.slurm_conf
    return bool(conf and its and os.path.realpath(conf) != os.path.realpath(its))
