"""Resolution of job names in job dependencies (``--dependency``) to job ids."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run

_DEPENDENCY_TYPES = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok", "singleton")
"""Slurm's dependency types (sbatch(1), ``--dependency``)."""

_JOB_ID = r"\d+(?:_\d+|_\*)?(?:\+\d+)?"


def resolve_dependency(text: str, slurm_conf: str | None) -> str:
    """Return a dependency for sbatch: replace job names and ``last`` by job ids.

    Args:
        text: The dependency, such as ``afterok:1234``, ``afterok:lenet5:last``, ``after:last+5,afternotok:1234``.
        slurm_conf: The slurm.conf of the cluster that the job is submitted to, if known.

    Raises:
        HpcrunError: The dependency type or the run does not exist, or the job is on another cluster.
    """
    conditions = re.split(r"([,?])", text)  # a comma means AND, a question mark OR
    return "".join(
        condition if index % 2 else _resolve_condition(condition, slurm_conf)
        for index, condition in enumerate(conditions)
    )


def parse_dependency(text: str) -> list[tuple[str, str]]:
    """Return the type and job id of each condition in a dependency for sbatch.

    Args:
        text: The dependency, such as ``afterok:12:13,after:14+5``.
    """
    dependencies = []
    for condition in re.split(r"[,?]", text):
        dependency_type, *jobs = condition.split(":")
        dependencies += [(dependency_type.lower(), job.partition("+")[0].removesuffix("_*")) for job in jobs]
    return dependencies


def _resolve_condition(condition: str, slurm_conf: str | None) -> str:
    kind, *jobs = condition.split(":")
    if kind.lower() not in _DEPENDENCY_TYPES or bool(jobs) == (kind.lower() == "singleton") or not all(jobs):
        suggestion = closest_match(kind, list(_DEPENDENCY_TYPES))
        hint = "for example afterok:1234, afterany:last, afternotok:lenet5 or singleton (sbatch(1), --dependency)"
        corrected_text = re.sub(r"[= ]+", ":", condition.strip())
        if (
            corrected_text != condition
            and corrected_text.partition(":")[0].lower() in _DEPENDENCY_TYPES
            and corrected_text.partition(":")[2]
        ):
            hint = f"did you mean --dependency={corrected_text}?"
        elif suggestion and suggestion != kind.lower():
            hint = f"did you mean {suggestion}?"
        elif not jobs and re.fullmatch(_JOB_ID, kind):
            hint = f"--dependency=afterok:{kind} waits until it has succeeded, afterany:{kind} until it has ended"
        raise HpcrunError(f"--dependency={condition}: expected TYPE:JOB", hint=hint)
    return ":".join([kind, *(job if re.fullmatch(_JOB_ID, job) else _resolve_job_id(job, slurm_conf) for job in jobs)])


def _resolve_job_id(job: str, slurm_conf: str | None) -> str:
    from hpcrun.jobs import run_selection  # most jobs have no dependency

    name, plus, minutes = job.partition("+")
    runs = run_selection.select_runs([name])
    if len(runs) > 1 and not run_selection.selects_one_run(name):
        raise HpcrunError(f"--dependency: {name} matches {len(runs)} jobs", hint="name each of them: afterok:12:13:14")
    if not runs[0].scheduler.uses_slurm or not runs[0].job_id:
        problem = "was never submitted" if not runs[0].job_id else "is not a Slurm job"
        raise HpcrunError(
            f"--dependency: {runs[0].name} ({runs[0].directory}) {problem}", hint=run_selection.SELECTION_HINT
        )
    if _is_on_other_cluster(runs[0], slurm_conf):
        problem = f"is a job of another cluster ({runs[0].slurm_conf}), not of this one ({slurm_conf})"
        raise HpcrunError(f"--dependency: {runs[0].name} {problem}", hint="hpcrun status shows the sites of jobs")
    resubmits_itself = runs[0].spec.max_requeue and not runs[0].spec.site.restart.requeue
    if resubmits_itself or runs[0].spec.memory_retries:
        problem = "resubmits itself under another id, and Slurm knows only its current id"
        raise HpcrunError(f"--dependency: {runs[0].name} {problem}", hint=f"use that id: {runs[0].job_id}")
    job_ids = [str(run.job_id) for run in runs]
    array_ids = list(dict.fromkeys(job_id.partition("_")[0] for job_id in job_ids))
    if len(runs) > 1 and len(array_ids) == 1:  # resumed tasks are in arrays of their own
        job_ids = array_ids
    return ":".join(f"{job_id}{plus}{minutes}" for job_id in job_ids)


def _is_on_other_cluster(run: Run, slurm_conf: str | None) -> bool:
    """Return whether a run's job certainly does not belong to the cluster of the new job."""
    job_conf = run.slurm_conf
    return bool(slurm_conf and job_conf and os.path.realpath(slurm_conf) != os.path.realpath(job_conf))
