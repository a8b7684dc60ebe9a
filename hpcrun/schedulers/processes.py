"""Processes of this machine: known by pid and start time, and a job's by a marker in their environment.

Nodes run this file too, with any Python from 3.8: it imports the standard library alone.
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
    """A process of this user's, as it was when it was looked at.

    Attributes:
        pid: Its id, which may be another process's later.
        start: When it started, in clock ticks since boot; with the pid, no other process has it.
        parent: Its parent's pid.
        session: Its session's id.
        name: Its name, which it may choose itself.
        environ: The environment that its program was started with.
        cgroup_job: The Slurm job whose cgroup it is in, where Slurm uses cgroups.
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
        """When it started, in seconds since 1970."""
        return _boot_time() + self.start / os.sysconf("SC_CLK_TCK")

    @property
    def slurm_job(self) -> str | None:
        """The Slurm job that its environment names."""
        return self.environ.get("SLURM_JOB_ID")

    @property
    def run_directory(self) -> str | None:
        """The run directory of a job of hpcrun's that its environment names."""
        return self.environ.get("HPCRUN_RUN_DIR")


def _boot_time() -> float:
    """Return when this host was booted, in seconds since 1970."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _read_stat(pid: int) -> tuple[str, list[str]] | None:
    """Return a process's name and the fields behind it (proc(5), stat field 3 on); None where it has ended."""
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = after.split()
    return None if fields[0] in "ZX" else (before.partition("(")[2], fields)


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc(5), stat field 22); None where it is gone."""
    found = _read_stat(pid)
    return int(found[1][19]) if found else None


def read_process(pid: int) -> Process | None:
    """Look at a process; None where it has ended or is another user's."""
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
    job = _CGROUP_JOB.search(cgroup) if os.getuid() else None  # Slurm's own daemons, which are root's, are there too
    parent, session, terminal, start = (int(fields[place]) for place in (1, 3, 4, 19))
    return Process(pid, start, parent, session, name, environ, job[1] if job else None, bool(terminal))


def command_line(pid: int) -> str:
    """Return the command line of a process, as far as it tells; empty where it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(word.decode(errors="replace") for word in words)


def user_processes() -> dict[int, Process]:
    """Return this user's processes, without this one, by their pids."""
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    found = (read_process(pid) for pid in pids if pid != os.getpid())
    return {process.pid: process for process in found if process}


def ancestors(pid: int) -> list[int]:
    """Return a process's own pid, its parent's, and so on up to the first process that can be seen."""
    line = []
    while pid and (found := _read_stat(pid)):
        line.append(pid)
        pid = int(found[1][1])
    return line


def find_run_pids(*directories: Path | str) -> list[int]:
    """Return the pids of this user's processes that carry a run directory's marker, in one of these spellings."""
    spellings = set(map(str, directories))
    return [process.pid for process in user_processes().values() if process.run_directory in spellings]


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; those that are gone are no fault."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def signal_process(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process that was looked at, and never to another that has got its pid since.

    Raises:
        OSError: The system refuses.
    """
    with contextlib.suppress(ProcessLookupError), contextlib.ExitStack() as stack:
        # held before its start is compared, this stands for that very process; Linux 5.3 and Python 3.9 have it
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
    """Return a descriptor that stands for a process; None where this kernel has none."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # an old Python; an old kernel, a container that forbids it
        return None
