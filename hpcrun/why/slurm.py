"""What only Slurm can say of one job: who cancelled it, when it may start, and behind how many others."""

from __future__ import annotations

import pwd
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import nodelist
from hpcrun.errors import HpcrunError
from hpcrun.schedulers.slurm import lines
from hpcrun.why.evidence import Evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

SECONDS = 20.0  # for an answer; without one there is less to tell


def _lines(run: Run, *command: str) -> list[str]:
    """Return what one of Slurm's commands says, of the Slurm that has the run's job."""
    return [line.strip() for line in lines(list(command), run.slurm_conf, SECONDS) or () if line.strip()]


def user(uid: int) -> str:
    """Return a user's name, or the number where it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def cancellers(runs: Sequence[Run]) -> dict[Run, str]:
    """Return who cancelled jobs; without those of which there is no accounting, or which Slurm itself cancelled.

    Args:
        runs: Jobs, or tasks of arrays; each Slurm is asked once.
    """
    found: dict[Run, str] = {}
    for conf in dict.fromkeys(run.slurm_conf for run in runs):
        together = [run for run in runs if run.slurm_conf == conf]
        who = _cancellers(together)
        found |= {run: who[str(run.job_id)] for run in together if run.job_id in who}
    return found


def _cancellers(runs: Sequence[Run]) -> dict[str, str]:
    """Return who cancelled jobs of one Slurm, by their ids."""
    asked = ",".join(dict.fromkeys(str(run.job_id).partition("_")[0] for run in runs))
    table = ("--allocations", "--noheader", "--parsable2", "--format=JobID,State")
    rows = _lines(runs[0], "sacct", *table, f"--jobs={asked}")
    who: dict[str, str] = {}
    for match in filter(None, (re.fullmatch(r"(\d+)(?:_\[?([^]%|]*))?[^|]*\|CANCELLED by (\d+)", row) for row in rows)):
        array, numbers, uid = match.groups()
        with suppress(HpcrunError):  # a long list of numbers ends with dots
            # tasks that never began have one row for all: 1234_[3-5,9%2]
            tasks = nodelist.expand(f"[{numbers}]") if numbers else []
            who |= dict.fromkeys([f"{array}_{task}" for task in tasks] or [array], user(int(uid)))
    return who


def waiting(run: Run, *, count: bool) -> list[Evidence]:
    """Return what Slurm says of a pending job: its start, what it depends on, how many are ahead of it.

    Args:
        run: The job.
        count: Whether others can be ahead of it at all.
    """
    rows = _lines(run, "squeue", "--noheader", f"--jobs={run.job_id}", "--format=%S|%P|%Q|%E")
    if not rows or rows[0].count("|") != 3:
        return []
    start, partition, priority, dependency = rows[0].split("|")
    said = []
    if dependency not in {"", "(null)"}:
        said.append(Evidence("squeue", f"it depends on {dependency}"))
    if start not in {"", "N/A"}:
        said.append(Evidence("squeue --start", f"expected to start at {start}, if nothing changes"))
    if count and (ahead := _ahead(run, partition, priority)) is not None:
        jobs = "1 pending job is" if ahead == 1 else f"{ahead or 'no'} pending jobs are"
        said.append(Evidence("squeue", f"{jobs} ahead of it in partition {partition}, of those that you may see"))
    return said


def _ahead(run: Run, partition: str, priority: str) -> int | None:
    """Return how many pending jobs have a higher priority, or the same and came first; None where nobody knows."""
    rows = _lines(run, "squeue", "--noheader", "--states=PENDING", f"--partition={partition}", "--format=%Q %i")
    pairs = [re.fullmatch(r"(\d+) (\d+)\S*", row) for row in rows]
    mine = -int(priority), int(re.split(r"\D", str(run.job_id))[0])
    return sum((-int(pair[1]), int(pair[2])) < mine for pair in pairs if pair) if pairs else None
