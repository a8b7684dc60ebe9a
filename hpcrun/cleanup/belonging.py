"""Which processes are a job's, and beyond doubt.

Nodes run this file too, with any Python from 3.8: it imports the standard library alone.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from hpcrun.schedulers.processes import Process


_OF_SYSTEM = {
    "sshd",
    "sshd-session",
    "systemd",
    "(sd-pam)",
    "dbus-daemon",
    "dbus-broker",
    "ssh-agent",
    "slurmd",
    "slurmstepd",
}
"""What a login, or Slurm, starts for itself."""

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
        last: When it gave its last sign of life: it ended no sooner. Infinite as long as it may run.
        spellings: All paths of its run directory, where a folder above is a link.
    """

    run_dir: str
    slurm_job: str | None
    begun: float
    ended: float | None
    others: tuple[str, ...] = ()
    over: float = inf
    last: float = inf
    spellings: tuple[str, ...] = ()

    def owns(self, process: Process) -> bool | None:
        """Return whether a process is this job's, as it says itself; None where it does not say.

        A job that another one submitted with sbatch has inherited the run directory of that one, but not its Slurm job;
        what a job started over ssh is part of no Slurm job.
        """
        if process.run_directory:
            return self._is(process.run_directory) and process.slurm_job in {None, self.slurm_job, *self.others}
        if job := process.cgroup_job or process.slurm_job:  # no process can leave its cgroup
            return job in {self.slurm_job, *self.others} and self._spans(process.started)
        return None

    def _is(self, path: str) -> bool:
        known = {self.run_dir, *self.spellings}
        name = path.rpartition("/")[2]  # a link above it may have yet another name here
        return path in known or (name == self.run_dir.rpartition("/")[2] and os.path.realpath(path) in known)

    def _spans(self, moment: float) -> bool:
        return self.ended is not None and self.begun - SLACK <= moment <= self.ended + SLACK

    def spans(self, process: Process) -> bool:
        """Return whether a process was started while the job may have run."""
        return self.begun - SLACK <= process.started <= self.last + SLACK

    def logs_to(self, process: Process) -> bool:
        """Return whether a process that the job's time saw start, and no terminal, writes to a log of the job."""
        if process.terminal or not self.spans(process):
            return False
        paths = "|".join(re.escape(os.path.realpath(path)) for path in (self.run_dir, *self.spellings))
        log = re.compile(rf"(?:{paths})/(?:[\d_]+_0_log\.(?:out|err)|logs/rank-\d+\.log)")
        return any(log.fullmatch(path) for path in _written(process.pid))


def _written(pid: int) -> Iterator[str]:
    """Yield the paths of the files that a process has open to write."""
    for name in _names(f"/proc/{pid}/fd"):
        with suppress(OSError):
            flags = Path(f"/proc/{pid}/fdinfo/{name}").read_text().partition("flags:")[2].split()
            if flags and int(flags[0], 8) & os.O_ACCMODE:
                yield os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 - may be any bytes


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - nothing but the names
    except OSError:
        return []


def belonging(mark: Mark, processes: Mapping[int, Process], spared: Collection[int]) -> list[Process]:
    """Return a job's processes: those that say so or write its logs, and of those that say nothing what goes with them.

    That is their descendants, and what is in a session that one of them leads: nobody joins another's session.

    Args:
        mark: The job.
        processes: This user's processes by their pids.
        spared: Pids of processes that are left alone whatever they say; their descendants must say so themselves.
    """
    says = {pid: mark.owns(process) for pid, process in processes.items() if pid not in spared}
    silent = {pid for pid, own in says.items() if own is None}
    found = {pid for pid, own in says.items() if own} | {pid for pid in silent if mark.logs_to(processes[pid])}
    while more := {pid for pid in silent - found if {processes[pid].parent, processes[pid].session} & found}:
        found |= more
    return [processes[pid] for pid in sorted(found)]


def unclaimed(marks: Collection[Mark], processes: Mapping[int, Process], known: Collection[int]) -> list[Process]:
    """Return processes that may be a job's, and of which nothing tells whether they are.

    These have lost their parent and have no terminal, were started while one of the jobs ran, and name no job; and
    their descendants.

    Args:
        marks: The jobs.
        processes: This user's processes by their pids.
        known: Pids of those of which it is known whose they are.
    """
    silent = {
        pid: process
        for pid, process in processes.items()
        if pid not in known
        and not (process.terminal or process.run_directory or process.slurm_job or process.cgroup_job)
        and process.name not in _OF_SYSTEM
        and any(mark.spans(process) for mark in marks)
    }
    reapers = {pid for pid, process in processes.items() if process.name in {"systemd", "slurmstepd"}} | {1}
    found = {pid for pid, one in silent.items() if one.parent in reapers or one.parent not in processes}
    while more := {pid for pid in set(silent) - found if silent[pid].parent in found}:
        found |= more
    return [silent[pid] for pid in sorted(found)]
