"""Decides which processes certainly belong to a job.

Compute nodes also run this file, with any Python from 3.8: it imports only the standard library.
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


_SYSTEM_PROCESSES = {
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
"""Names of processes that a login or Slurm itself starts."""

CLOCK_SLACK_SECONDS = 2.0
"""Tolerated clock difference between a login node and a compute node."""


@dataclass(frozen=True)
class JobIdentity:
    """The properties that identify a job's processes and files.

    Attributes:
        run_dir: The run directory, which the job's processes have in HPCRUN_RUN_DIR.
        slurm_job: The id of the Slurm job that its processes run in; None without one.
        submitted: The submit time, in seconds since 1970.
        slurm_ended: The end time, for a job with its own Slurm job: a process that started before it, with the Slurm
            job's id and without a run directory, belongs to the job. Another cluster's job may have the same id. None
            where the id alone identifies nothing, as for a job that ran inside an allocation.
        other_job_ids: Further job ids: of earlier submissions of the same run, or of an array and its task.
        ended: The end time of any kind of job; infinite where it is unknown.
        last_activity: The earliest time at which the job may have ended; infinite while it may still run.
        run_dir_aliases: All paths of the run directory, where a parent folder is a symbolic link.
    """

    run_dir: str
    slurm_job: str | None
    submitted: float
    slurm_ended: float | None
    other_job_ids: tuple[str, ...] = ()
    ended: float = inf
    last_activity: float = inf
    run_dir_aliases: tuple[str, ...] = ()

    def owns_process(self, process: Process) -> bool | None:
        """Return whether a process belongs to this job by its environment or cgroup; None where they name no job.

        A job that was submitted by another job inherits that job's run directory, but not its Slurm job id. A process
        that a job started over ssh has no Slurm job id.
        """
        if process.run_directory:
            ids = {None, self.slurm_job, *self.other_job_ids}
            return self._is_run_dir(process.run_directory) and process.slurm_job in ids
        if job := process.cgroup_job or process.slurm_job:  # no process can leave its cgroup
            return job in {self.slurm_job, *self.other_job_ids} and self._slurm_job_ran_at(process.start_seconds)
        return None

    def _is_run_dir(self, path: str) -> bool:
        known = {self.run_dir, *self.run_dir_aliases}
        name = path.rpartition("/")[2]  # a parent folder may be another symbolic link on this host
        return path in known or (name == self.run_dir.rpartition("/")[2] and os.path.realpath(path) in known)

    def _slurm_job_ran_at(self, moment: float) -> bool:
        if self.slurm_ended is None:
            return False
        return self.submitted - CLOCK_SLACK_SECONDS <= moment <= self.slurm_ended + CLOCK_SLACK_SECONDS

    def may_have_started(self, process: Process) -> bool:
        """Return whether a process started at a time when the job may have run."""
        return self.submitted - CLOCK_SLACK_SECONDS <= process.start_seconds <= self.last_activity + CLOCK_SLACK_SECONDS

    def is_log_writer(self, process: Process) -> bool:
        """Return whether a process without a terminal writes to a log of the job, and may have started during it."""
        if process.terminal or not self.may_have_started(process):
            return False
        paths = "|".join(re.escape(os.path.realpath(path)) for path in (self.run_dir, *self.run_dir_aliases))
        log = re.compile(rf"(?:{paths})/(?:[\d_]+_0_log\.(?:out|err)|logs/rank-\d+\.log)")
        return any(log.fullmatch(path) for path in _files_open_for_writing(process.pid))


def _files_open_for_writing(pid: int) -> Iterator[str]:
    for descriptor in _list_folder(f"/proc/{pid}/fd"):
        with suppress(OSError):
            flags = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().partition("flags:")[2].split()
            if flags and int(flags[0], 8) & os.O_ACCMODE:
                yield os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - may be any bytes


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - only the names are needed
    except OSError:
        return []


def find_processes(job: JobIdentity, processes: Mapping[int, Process], excluded: Collection[int]) -> list[Process]:
    """Return a job's processes.

    A process belongs to the job if its environment or cgroup says so or if it writes to the job's logs. Processes that
    name no job belong to it if their parent or the leader of their session does: no process can join another's session.

    Args:
        job: The job.
        processes: This user's processes by pid.
        excluded: Pids of processes that are never returned; their children must identify themselves.
    """
    owned = {pid: job.owns_process(process) for pid, process in processes.items() if pid not in excluded}
    unidentified = {pid for pid, own in owned.items() if own is None}
    found = {pid for pid, own in owned.items() if own} | {
        pid for pid in unidentified if job.is_log_writer(processes[pid])
    }
    while more := {pid for pid in unidentified - found if {processes[pid].parent, processes[pid].session} & found}:
        found |= more
    return [processes[pid] for pid in sorted(found)]


def find_unattributed(
    jobs: Collection[JobIdentity], processes: Mapping[int, Process], attributed: Collection[int]
) -> list[Process]:
    """Return processes that may belong to one of the jobs, but cannot be attributed to any job.

    They have lost their parent, have no terminal, started while one of the jobs ran, and name no job; their descendants
    are returned, too.

    Args:
        jobs: The jobs.
        processes: This user's processes by pid.
        attributed: Pids of processes whose owner is known.
    """
    candidates = {
        pid: process
        for pid, process in processes.items()
        if pid not in attributed
        and not (process.terminal or process.run_directory or process.slurm_job or process.cgroup_job)
        and process.name not in _SYSTEM_PROCESSES
        and any(job.may_have_started(process) for job in jobs)
    }
    reapers = {pid for pid, process in processes.items() if process.name in {"systemd", "slurmstepd"}} | {1}
    found = {pid for pid, process in candidates.items() if process.parent in reapers or process.parent not in processes}
    while more := {pid for pid in set(candidates) - found if candidates[pid].parent in found}:
        found |= more
    return [candidates[pid] for pid in sorted(found)]
