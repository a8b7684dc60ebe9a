"""Identification of the processes that belong to a job.

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
"""Names of processes that a login session or a Slurm daemon starts."""

CLOCK_SLACK_SECONDS = 2.0
"""Tolerated clock difference between a login node and a compute node, in s."""


@dataclass(frozen=True)
class JobIdentity:
    """The properties that identify a job's processes and files.

    Attributes:
        run_dir: The run directory, to which HPCRUN_RUN_DIR is set in the job's processes.
        slurm_job: Id of the Slurm job in which the job's processes run; None for a local job outside an allocation.
        submitted: The submit time, in seconds since 1970.
        slurm_ended: End time of the Slurm job, in seconds since 1970. A process with this Slurm job id and without
            HPCRUN_RUN_DIR belongs to the job only if it started earlier: another cluster may use the same id. None if
            the job has no Slurm job id of its own, as for a job that ran inside another job's allocation.
        other_job_ids: Slurm job ids of earlier submissions of the run, or of its array and its array task.
        ended: End time of the job, in seconds since 1970; infinite if unknown.
        last_activity: Time of the job's last known activity, in seconds since 1970; infinite if it may still run.
        run_dir_aliases: All paths of the run directory, if a parent folder is a symbolic link.
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
        """Return whether a process belongs to this job by its environment or cgroup; None if they name no job.

        A job that was submitted from within another job inherits HPCRUN_RUN_DIR, but not the Slurm job id. A process
        that a job started over ssh has no Slurm job id.
        """
        if process.run_directory:
            ids = {None, self.slurm_job, *self.other_job_ids}
            return self._is_run_dir(process.run_directory) and process.slurm_job in ids
        if job := process.cgroup_job or process.slurm_job:  # no process can leave its cgroup
            return job in {self.slurm_job, *self.other_job_ids} and self._slurm_job_ran_at(process.start_seconds)
        return None

    def _is_run_dir(self, path: str) -> bool:
        known_paths = {self.run_dir, *self.run_dir_aliases}
        name = path.rpartition("/")[2]  # a parent directory may be a symbolic link on this host
        return path in known_paths or (
            name == self.run_dir.rpartition("/")[2] and os.path.realpath(path) in known_paths
        )

    def _slurm_job_ran_at(self, timestamp: float) -> bool:
        if self.slurm_ended is None:
            return False
        return self.submitted - CLOCK_SLACK_SECONDS <= timestamp <= self.slurm_ended + CLOCK_SLACK_SECONDS

    def may_have_started(self, process: Process) -> bool:
        """Return whether a process started while the job may have been running."""
        return self.submitted - CLOCK_SLACK_SECONDS <= process.start_seconds <= self.last_activity + CLOCK_SLACK_SECONDS

    def is_log_writer(self, process: Process) -> bool:
        """Return whether a process without a terminal, started while the job may have run, writes to the job's log."""
        if process.terminal or not self.may_have_started(process):
            return False
        paths = "|".join(re.escape(os.path.realpath(path)) for path in (self.run_dir, *self.run_dir_aliases))
        log_pattern = re.compile(rf"(?:{paths})/(?:[\d_]+_0_log\.(?:out|err)|logs/rank-\d+\.log)")
        return any(log_pattern.fullmatch(path) for path in _files_open_for_writing(process.pid))


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


def find_processes(job: JobIdentity, processes: Mapping[int, Process], excluded_pids: Collection[int]) -> list[Process]:
    """Return a job's processes.

    A process belongs to the job if its environment or cgroup names the job, or if it writes to the job's logs. A
    process whose environment and cgroup name no job belongs to the jobs of its parent and of its session leader: no
    process can join a session.

    Args:
        job: The job.
        processes: All processes of this user, by pid.
        excluded_pids: Pids of processes that do not belong to the job; being a child of one of them does not make a
            process part of the job.
    """
    ownership = {pid: job.owns_process(process) for pid, process in processes.items() if pid not in excluded_pids}
    unidentified_pids = {pid for pid, is_owned in ownership.items() if is_owned is None}
    job_pids = {pid for pid, is_owned in ownership.items() if is_owned} | {
        pid for pid in unidentified_pids if job.is_log_writer(processes[pid])
    }
    while new_pids := {
        pid for pid in unidentified_pids - job_pids if {processes[pid].parent, processes[pid].session} & job_pids
    }:
        job_pids |= new_pids
    return [processes[pid] for pid in sorted(job_pids)]


def find_unattributed_processes(
    jobs: Collection[JobIdentity], processes: Mapping[int, Process], attributed_pids: Collection[int]
) -> list[Process]:
    """Return processes that may belong to one of the jobs, but cannot be attributed to any job.

    A process may belong to a job if it has lost its parent, has no terminal, started while one of the jobs ran, and
    names no job. The descendants of these processes are returned, too.

    Args:
        jobs: The jobs.
        processes: All processes of this user, by pid.
        attributed_pids: Pids of processes that are known to belong to a job or to this command.
    """
    candidates = {
        pid: process
        for pid, process in processes.items()
        if pid not in attributed_pids
        and not (process.terminal or process.run_directory or process.slurm_job or process.cgroup_job)
        and process.name not in _SYSTEM_PROCESSES
        and any(job.may_have_started(process) for job in jobs)
    }
    reaper_pids = {pid for pid, process in processes.items() if process.name in {"systemd", "slurmstepd"}} | {1}
    found_pids = {
        pid for pid, process in candidates.items() if process.parent in reaper_pids or process.parent not in processes
    }
    while child_pids := {pid for pid in set(candidates) - found_pids if candidates[pid].parent in found_pids}:
        found_pids |= child_pids
    return [candidates[pid] for pid in sorted(found_pids)]
