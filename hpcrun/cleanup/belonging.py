"""Which processes are a job's, and beyond doubt.

Nodes run this file too, with any Python from 3.8: it imports the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hpcrun.schedulers.processes import Process


SLACK = 2.0
"""Seconds between the clocks of a login node and a compute node."""


@dataclass(frozen=True)
class Mark:
    """By what a job's processes and files are known.

    Attributes:
        run_dir: Its run directory, which its processes carry as HPCRUN_RUN_DIR.
        slurm_job: The Slurm job that its processes are part of; None for none.
        begun: When it was submitted, in seconds since 1970.
        ended: When it ended, for a Slurm job of its own: a process of that time that carries the Slurm job's id and no
            run directory is its script, or of its script. Another cluster's job may have the same id. None where the id
            alone tells nothing, as for a job that was run inside an allocation.
        others: Its other ids: it may have submitted itself again, and a task of an array has one beside the array's.
        over: When it ended, whatever kind of job it was; infinite where nobody knows.
    """

    run_dir: str
    slurm_job: str | None
    begun: float
    ended: float | None
    others: tuple[str, ...] = ()
    over: float = inf

    def owns(self, process: Process) -> bool | None:
        """Return whether a process is this job's, as it says itself; None where it does not say.

        A job that another one submitted with sbatch has inherited the run directory of that one, but not its Slurm job;
        what a job started over ssh is part of no Slurm job.
        """
        if process.run_directory:
            return process.run_directory == self.run_dir and process.slurm_job in {None, self.slurm_job, *self.others}
        if job := process.cgroup_job or process.slurm_job:  # no process can leave its cgroup
            return job in {self.slurm_job, *self.others} and self._spans(process.started)
        return None

    def _spans(self, moment: float) -> bool:
        return self.ended is not None and self.begun - SLACK <= moment <= self.ended + SLACK


def belonging(mark: Mark, processes: Mapping[int, Process], spared: Collection[int]) -> list[Process]:
    """Return a job's processes: those that say so, and their descendants that say nothing.

    Args:
        mark: The job.
        processes: This user's processes by their pids.
        spared: Pids of processes that are left alone whatever they say; their descendants must say so themselves.
    """
    says = {pid: mark.owns(process) for pid, process in processes.items() if pid not in spared}
    found = {pid for pid, own in says.items() if own}
    while more := {
        pid for pid, own in says.items() if own is None and pid not in found and processes[pid].parent in found
    }:
        found |= more
    return [processes[pid] for pid in sorted(found)]
