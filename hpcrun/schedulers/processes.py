"""The local "queue": jobs are processes of this machine, known by pid and start time, their ranks by a marker."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs.states import State, from_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

GRACE_SECONDS = 10.0


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (proc(5), stat field 22); None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _alive(run: Run) -> bool:
    return bool(start_time(int(run.submission["job_id"])) == run.submission["start_time"])


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


def states(runs: Sequence[Run]) -> dict[str, State]:
    """Return the state of each run by its job id; see `hpcrun.schedulers.Queue`."""
    found = {}
    for run in runs:
        if ended := run.ended():
            state = from_record(ended)
        elif run.submission["host"] != os.uname().nodename:
            state = State("UNKNOWN", f"runs on {run.submission['host']}", run.submission["host"])
        elif _alive(run):
            minutes, seconds = divmod(int(time.time() - run.submission["submitted"]), 60)
            state = State("RUNNING", "", run.submission["host"], f"{minutes}:{seconds:02}")
        elif ended := run.ended():  # it ended between the two looks
            state = from_record(ended)
        else:
            state = State("FAILED", "it ended without an exit record", run.submission["host"])
        found[run.job_id or ""] = state
    return found


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def cancel(run: Run) -> None:
    """End a job with all its ranks: SIGTERM to its script, and SIGKILL to what is left after `GRACE_SECONDS`.

    Raises:
        HpcrunError: The job runs on another host.
    """
    host = run.submission["host"]
    if host != os.uname().nodename:
        raise HpcrunError(f"job {run.job_id} runs on {host}, not here", hint=f"ssh {host} hpcrun cancel {run.job_id}")
    if _alive(run):
        _signal([int(run.submission["job_id"])], signal.SIGTERM)  # it tells the launcher, which tells the ranks
    deadline = time.monotonic() + GRACE_SECONDS
    orphans: set[int] = set()
    while (left := marked(run.directory)) and time.monotonic() < deadline:
        if not _alive(run) and set(left) - orphans:
            _signal(left, signal.SIGTERM)
            orphans.update(left)
        time.sleep(0.05)
    _signal(left, signal.SIGKILL)
