"""This machine: the rendered script runs detached, survives the terminal, and is found again by pid and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs.states import State, from_record
from hpcrun.schedulers.environment import clean
from hpcrun.schedulers.processes import marked, send, start_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

GRACE_SECONDS = 10.0
PATIENCE_SECONDS = 2.0


def submit(run: Run) -> str:
    """Start a run directory's ``job.sh``; see `hpcrun.schedulers.Scheduler`."""
    keeps_allocation = run.spec["reach"] == "slurm"
    environment = {**(os.environ if keeps_allocation else clean()), "HPCRUN_RUN_DIR": str(run.directory)}
    out, err = run.directory / "starting.out", run.directory / "starting.err"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            ["bash", str(run.directory / "job.sh")],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()  # else it stays a zombie for as long as we live
    # the id is the pid, known only now; an open file may be renamed
    out.rename(run.directory / f"{process.pid}_0_log.out")
    err.rename(run.directory / f"{process.pid}_0_log.err")
    run.submitted(str(process.pid), start_time=start_time(process.pid))
    return str(process.pid)


def _alive(run: Run) -> bool:
    return bool(start_time(int(run.submission["job_id"])) == run.submission["start_time"])


def states(runs: Sequence[Run]) -> dict[str, State]:
    """Return the state of each run by its job id; see `hpcrun.schedulers.Scheduler`."""
    found = {}
    for run in runs:
        here = run.submission["host"] == os.uname().nodename
        if here and _alive(run):
            minutes, seconds = divmod(int(time.time() - run.submission["submitted"]), 60)
            state = State("RUNNING", "", run.submission["host"], f"{minutes}:{seconds:02}")
        elif record := run.record():
            state = from_record(record)
        elif not here:
            state = State("UNKNOWN", f"runs on {run.submission['host']}", run.submission["host"])
        else:
            state = State("FAILED", "it ended without an exit record", run.submission["host"])
        found[run.job_id or ""] = state
    return found


def cancel(run: Run) -> None:
    """End a job with all its ranks: SIGTERM to its script, and SIGKILL to what is left after `GRACE_SECONDS`.

    Raises:
        HpcrunError: The job runs on another host.
    """
    host = run.submission["host"]
    if host != os.uname().nodename:
        raise HpcrunError(f"job {run.job_id} runs on {host}, not here", hint=f"ssh {host} hpcrun cancel {run.job_id}")
    if _alive(run):
        send([int(run.submission["job_id"])], signal.SIGTERM)  # it tells the launcher, which tells the ranks
    deadline = time.monotonic() + GRACE_SECONDS
    orphans: set[int] = set()
    while (left := marked(run.directory)) and time.monotonic() < deadline:
        if not _alive(run) and set(left) - orphans:
            send(left, signal.SIGTERM)
            orphans.update(left)
        time.sleep(0.05)
    # SIGKILL for the ranks first: a script that still lives then ends by itself, and records it
    script, begin = int(run.submission["job_id"]), time.monotonic()
    while left and time.monotonic() < begin + GRACE_SECONDS:  # a process in the kernel's hands takes its time
        patient = time.monotonic() < begin + PATIENCE_SECONDS
        send([pid for pid in left if not (patient and pid == script)], signal.SIGKILL)
        time.sleep(0.02)
        left = marked(run.directory)
