"""Processes on this host. A process is identified by pid and start time, and belongs to a job by HPCRUN_RUN_DIR.

Nodes may run this file with Python 3.8 or later and without packages, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CGROUP_JOB = re.compile(r"slurm.*/job_(\d+)(?:/|$)", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """The state of a process of this user at one moment.

    Attributes: pid: The process id, which the system may later assign to another process.
        start: The start time in clock ticks since boot; unique together with the pid.
        parent: The pid of the parent process.
        session: The session id.
        name: The command name, which the process can change.
        environ: The environment variables at the start of the program.
        cgroup_job: The Slurm job id in the process's cgroup; None without a Slurm job.
        terminal: Whether the process has a controlling terminal.
    """

    pid: int
    start: int
    parent: int
    session: int
    name: str
    environ: dict[str, str]
    cgroup_job: str | None
    terminal: bool = False

    @property
    def start_seconds(self) -> float:
        """The start time of the process in seconds since 1970."""
        return _boot_time() + self.start / os.sysconf("SC_CLK_TCK")

    @property
    def slurm_job(self) -> str | None:
        """The Slurm job id in the environment of the process."""
        return self.environ.get("SLURM_JOB_ID")

    @property
    def run_directory(self) -> str | None:
        """The run directory in the environment of the process."""
        return self.environ.get("HPCRUN_RUN_DIR")


def _boot_time() -> float:
    """Return the time of the last boot of this host, in seconds since 1970."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _read_stat(pid: int) -> tuple[str, list[str]] | None:
    """Return a process's name, and the fields of /proc/PID/stat from the third on; None if the process has exited."""
    try:
        name_part, _, field_part = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = field_part.split()
    return None if fields[0] in "ZX" else (name_part.partition("(")[2], fields)


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot (proc(5), stat field 22); None if it has exited."""
    name_and_fields = _read_stat(pid)
    return int(name_and_fields[1][19]) if name_and_fields else None


def read_process(pid: int) -> Process | None:
    """Read the state of a process; None if it has exited or belongs to another user."""
    try:
        status_text = Path(f"/proc/{pid}/status").read_text(errors="replace")
        uids = re.findall(r"^Uid:(.*)$", status_text, re.MULTILINE)[0].split()
        name_and_fields = _read_stat(pid) if set(uids) == {str(os.getuid())} else None
        if not name_and_fields:
            return None
        cgroup = Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    name, fields = name_and_fields
    environ = dict(os.fsdecode(line).split("=", 1) for line in variables if b"=" in line)
    # if root runs hpcrun, these processes are Slurm's daemons
    job_match = _CGROUP_JOB.search(cgroup) if os.getuid() else None
    parent, session, terminal, start = (int(fields[index]) for index in (1, 3, 4, 19))
    return Process(pid, start, parent, session, name, environ, job_match[1] if job_match else None, bool(terminal))


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if the process has exited or its command line is unreadable."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode(errors="replace") for word in arguments)


def user_processes() -> dict[int, Process]:
    """Return this user's processes by pid, without the current process."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    processes = (read_process(pid) for pid in pids if pid != os.getpid())
    return {process.pid: process for process in processes if process}


def ancestors(pid: int) -> list[int]:
    """Return the pid of a process, its parent, and so on up to the first visible process."""
    pids = []
    while pid and (name_and_fields := _read_stat(pid)):
        pids.append(pid)
        pid = int(name_and_fields[1][1])
    return pids


def find_run_pids(*directories: Path | str) -> list[int]:
    """Return the pids of this user's processes whose HPCRUN_RUN_DIR is one of some paths."""
    paths = set(map(str, directories))
    return [process.pid for process in user_processes().values() if process.run_directory in paths]


def send_signal(pids: Iterable[int], signal_number: signal.Signals) -> None:
    """Send a signal to processes; ignore processes that have exited."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def signal_process(process: Process, signal_number: signal.Signals) -> None:
    """Send a signal to a process, and never to a later process with the same pid.

    Raises:
        OSError: The signal is not permitted.
    """
    with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as stack:
        # A pidfd that is opened before the comparison of start times cannot refer to a later process (Linux 5.3).
        descriptor = _open_pidfd(process.pid)
        if descriptor is not None:
            stack.callback(os.close, descriptor)
        if start_time(process.pid) != process.start:
            return
        if descriptor is None:
            os.kill(process.pid, signal_number)
        else:
            signal.pidfd_send_signal(descriptor, signal_number)


def _open_pidfd(pid: int) -> int | None:
    """Return a pidfd of a process; None if the system does not support pidfds."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    # AttributeError: Python before 3.9; OSError: an old kernel, or a container that forbids pidfds
    except (AttributeError, OSError):
        return None
