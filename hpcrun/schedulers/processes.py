"""Processes of this machine: known by pid and start time, and a job's by a marker in their environment."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc(5), stat field 22); None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def marked(directory: Path) -> list[int]:
    """Return the pids of this user's processes that carry a run directory's marker in their environment."""
    marker = f"HPCRUN_RUN_DIR={directory}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # another user's process, or one that just ended
                if marker in Path(f"/proc/{entry.name}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; those that are gone are no fault."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
