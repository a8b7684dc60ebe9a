"""``--dependency`` in Slurm's words, with jobs named as in every other command."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.jobs import select

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run

_KINDS = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok", "singleton")
"""The types of dependencies (sbatch(1), ``--dependency``)."""

_ID = re.compile(r"\d+(?:_\d+|_\*)?(?:\+\d+)?")


def resolved(text: str, conf: str | None) -> str:
    """Return a dependency as sbatch takes it: names and ``last`` become job ids, and ids stay as they are.

    Args:
        text: Such as ``afterok:1234``, ``afterok:lenet5:last``, ``after:last+5,afternotok:1234``.
        conf: The slurm.conf of the Slurm that the job goes to, where it is known.

    Raises:
        HpcrunError: There is no such type or run, or it is no job of that Slurm's.
    """
    parts = re.split(r"([,?])", text)  # all must be satisfied, or any
    return "".join(part if number % 2 else _one(part, conf) for number, part in enumerate(parts))


def waited_for(text: str) -> list[tuple[str, str]]:
    """Return the type and the job's id of each condition in a dependency as sbatch takes it.

    Args:
        text: Such as ``afterok:12:13,after:14+5``.
    """
    found = []
    for part in re.split(r"[,?]", text):
        kind, *jobs = part.split(":")
        found += [(kind.lower(), job.partition("+")[0].removesuffix("_*")) for job in jobs]
    return found


def _one(part: str, conf: str | None) -> str:
    kind, *jobs = part.split(":")
    if kind.lower() not in _KINDS or bool(jobs) == (kind.lower() == "singleton") or not all(jobs):
        like = closest_match(kind, list(_KINDS))
        hint = "for example afterok:1234, afterany:last, afternotok:lenet5 or singleton (sbatch(1), --dependency)"
        if like and like != kind.lower():
            hint = f"did you mean {like}?"
        raise HpcrunError(f"--dependency={part}: not TYPE:JOB", hint=hint)
    return ":".join([kind, *(job if _ID.fullmatch(job) else _id(job, conf) for job in jobs)])


def _id(word: str, conf: str | None) -> str:
    name, plus, minutes = word.partition("+")
    runs = select.select([name])
    if len(runs) > 1 and not select.means_one(name):
        raise HpcrunError(f"--dependency: {name} means {len(runs)} jobs", hint="name each of them: afterok:12:13:14")
    if runs[0].scheduler != "slurm" or not runs[0].job_id:
        what = "was never submitted" if not runs[0].job_id else "is no job of Slurm's"
        raise HpcrunError(f"--dependency: {runs[0].name} ({runs[0].directory}) {what}", hint=select.FORMS)
    if _elsewhere(runs[0], conf):
        what = f"is a job of another Slurm ({runs[0].slurm_conf}), of which this one ({conf}) knows nothing"
        raise HpcrunError(f"--dependency: {runs[0].name} {what}", hint="hpcrun status tells the sites of jobs")
    if runs[0].spec.max_requeue and not runs[0].spec.site.restart.requeue:
        what = "submits itself again under another id, and Slurm knows only the one that it has now"
        raise HpcrunError(f"--dependency: {runs[0].name} {what}", hint=f"give that: {runs[0].job_id}")
    job_id = runs[0].job_id
    return f"{job_id.partition('_')[0] if len(runs) > 1 else job_id}{plus}{minutes}"


def _elsewhere(run: Run, conf: str | None) -> bool:
    """Return whether a run's job is known to be of another Slurm than a job goes to."""
    its = run.slurm_conf
    return bool(conf and its and os.path.realpath(conf) != os.path.realpath(its))
