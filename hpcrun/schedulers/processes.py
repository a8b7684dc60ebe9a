"""Processes of this host, identified by pid and start time, and those of a job by a variable in their environment.

Nodes run this file with any Python from 3.8, so it imports only the standard library.
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
    """The state of one of this user's processes at one moment.

    Attributes:
        pid: The process id, which the system may reuse later.
        start: The start time in clock ticks since boot; unique together with the pid.
        parent: The pid of the parent.
        session: The session id.
        name: The command name, which the process can change.
        environ: The environment at the start of its program.
        cgroup_job: The Slurm job of its cgroup, if Slurm uses cgroups.
        terminal: Whether it has a controlling terminal.
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
    def started(self) -> float:
        """The start time in seconds since 1970."""
        return _boot_time() + self.start / os.sysconf("SC_CLK_TCK")

    @property
    def slurm_job(self) -> str | None:
        """The Slurm job id in its environment."""
        return self.environ.get("SLURM_JOB_ID")

    @property
    def run_directory(self) -> str | None:
        """The run directory in its environment."""
        return self.environ.get("HPCRUN_RUN_DIR")


def _boot_time() -> float:
    """Return the time of the last boot of this host, in seconds since 1970."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _read_stat(pid: int) -> tuple[str, list[str]] | None:
    """Return the name of a process and the stat fields from field 3 on (proc(5)); None if it has exited."""
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = after.split()
    return None if fields[0] in "ZX" else (before.partition("(")[2], fields)


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot (proc(5), stat field 22); None if it has exited."""
    found = _read_stat(pid)
    return int(found[1][19]) if found else None


def read_process(pid: int) -> Process | None:
    """Read the state of a process; None if it has exited or belongs to another user."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        uids = re.findall(r"^Uid:(.*)$", status, re.MULTILINE)[0].split()
        found = _read_stat(pid) if set(uids) == {str(os.getuid())} else None
        if not found:
            return None
        cgroup = Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    name, fields = found
    environ = dict(os.fsdecode(line).split("=", 1) for line in variables if b"=" in line)
    job = _CGROUP_JOB.search(cgroup) if os.getuid() else None  # root's processes there are Slurm's daemons
    parent, session, terminal, start = (int(fields[index]) for index in (1, 3, 4, 19))
    return Process(pid, start, parent, session, name, environ, job[1] if job else None, bool(terminal))


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if it has exited or hides it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode(errors="replace") for word in words)


def user_processes() -> dict[int, Process]:
    """Return this user's processes by pid, without this one."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    found = (read_process(pid) for pid in pids if pid != os.getpid())
    return {process.pid: process for process in found if process}


def ancestors(pid: int) -> list[int]:
    """Return the pid of a process, its parent, and so on up to the first visible process."""
    pids = []
    while pid and (found := _read_stat(pid)):
        pids.append(pid)
        pid = int(found[1][1])
    return pids


def find_run_pids(*directories: Path | str) -> list[int]:
    """Return the pids of this user's processes whose HPCRUN_RUN_DIR is one of these paths."""
    paths = set(map(str, directories))
    return [process.pid for process in user_processes().values() if process.run_directory in paths]


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes, ignoring those that have exited."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def signal_process(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process, and never to a later process of the same pid.

    Raises:
        OSError: The signal is not permitted.
    """
    with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as stack:
        # Opened before the start time is compared, a pidfd cannot refer to a later process (Linux 5.3, Python 3.9).
        descriptor = _open_pidfd(process.pid)
        if descriptor is not None:
            stack.callback(os.close, descriptor)
        if start_time(process.pid) != process.start:
            return
        if descriptor is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)


def _open_pidfd(pid: int) -> int | None:
    """Return a pidfd of a process; None if the system does not support it."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # an old Python; an old kernel, or a container that forbids it
        return None
