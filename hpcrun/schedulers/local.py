"""This machine: the rendered script runs detached, survives the terminal, and is found again by pid and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.jobs.runs import discard_run, write_submission
from hpcrun.jobs.states import State, state_from_record
from hpcrun.schedulers.environment import command_environment
from hpcrun.schedulers.processes import find_run_pids, send_signal, start_time, user_processes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.processes import Process

_START_COMMAND = 'exec bash "$0" >"$1/$$_0_log.out" 2>"$1/$$_0_log.err"'
"""Starts a script whose logs are named after its pid, so that they tell it even if we are killed meanwhile."""

KILL_SECONDS = 10.0
GRACE_SECONDS = 2.0


def submit(run: Run) -> str:
    """Start a run directory's ``job.sh``, for a sweep once a task; see `hpcrun.schedulers.Scheduler`.

    Returns:
        The job's id; for a sweep, whose tasks have ids of their own, its directory.

    Raises:
        HpcrunError: It cannot be started, or not be written down; nothing is left of it then.
    """
    try:
        if not run.tasks:
            return _start_script(run)
        for number, task in enumerate(run.tasks):
            _start_script(task, HPCRUN_TASK=str(number))
    except OSError as error:  # nothing of hpcrun's would find the job again
        for one in run.tasks or [run]:
            _kill_started(one, time.monotonic() + KILL_SECONDS)
        discard_run(run)
        what = f"job {run.name} cannot be started: {run.directory}: {error.strerror}; nothing of it is left"
        raise HpcrunError(what, hint="make room there, or set HPCRUN_RUN_ROOT", exit_code=1) from None
    return str(run.directory)


def _start_script(run: Run, **more: str) -> str:
    keeps_allocation = run.spec.transport == "slurm"
    own = {"HPCRUN_RUN_DIR": str(run.directory), **more}
    process = subprocess.Popen(
        ["bash", "-c", _START_COMMAND, str(run.directory / "job.sh"), str(run.directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**(os.environ if keeps_allocation else command_environment()), **own},
        start_new_session=True,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # else it stays a zombie for as long as we live
    allocation = os.environ.get("SLURM_JOB_ID") if keeps_allocation else None
    write_submission({run: str(process.pid)}, start_time=start_time(process.pid), allocation=allocation)
    return str(process.pid)


def running_scripts() -> dict[str, Process]:
    """Return the job scripts that run here, by the run directories that they name."""
    return {one.run_directory: one for one in user_processes().values() if one.run_directory and one.pid == one.session}


def find_unrecorded(runs: Sequence[Run]) -> dict[Path, dict[str, Any] | None]:
    """Find jobs that run here, or have ended; see `hpcrun.schedulers.Scheduler`."""
    alive = running_scripts()
    found: dict[Path, dict[str, Any] | None] = {}
    for run in runs:
        job_id, record = run.log_job_id, run.exit_record()
        process = alive.get(str(run.directory))
        if job_id and process:
            found[run.directory] = {"job_id": job_id, "start_time": process.start}
        elif record and job_id:
            found[run.directory] = {"job_id": job_id, "start_time": None, "host": record.host}
        elif not job_id:
            found[run.directory] = None
    return found


def _is_running(run: Run) -> bool:
    begun = run.submission.start_time
    return bool(begun) and start_time(int(run.submission.job_id)) == begun


def query_states(runs: Sequence[Run]) -> dict[Run, State]:
    """Return the state of each run; see `hpcrun.schedulers.Scheduler`."""
    found = {}
    for run in runs:
        here = run.submission.host == os.uname().nodename
        alive = here and _is_running(
            run
        )  # asked before the record is read, which is the last thing that a script writes
        record = run.exit_record()
        if alive and not (record and record.ended):
            minutes, seconds = divmod(int(time.time() - run.submission.submitted), 60)
            state = State("RUNNING", "", run.submission.host, f"{minutes}:{seconds:02}")
            if run.values and not (run.directory / "hostfile").exists():
                state = State("PENDING", "other tasks of its sweep run")
        elif record:
            state = state_from_record(record)
        elif not here:
            state = State("UNKNOWN", f"runs on {run.submission.host}", run.submission.host)
        else:
            state = State("FAILED", "it ended without an exit record", run.submission.host)
        found[run] = state
    return found


def _wait_for_traps(run: Run) -> None:
    """Wait until a script that has just begun minds signals, and will record them: there is an exit.json then."""
    deadline = time.monotonic() + GRACE_SECONDS
    while _is_running(run) and not (run.directory / "exit.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def request_stop(run: Run) -> bool:
    """Ask a job's ranks to end by themselves; see `hpcrun.schedulers.Scheduler`.

    Raises:
        HpcrunError: The job runs on another host.
    """
    _require_this_host(run)
    # the script tells the launcher, which tells the ranks
    told = [int(run.submission.job_id)] if _is_running(run) else find_run_pids(*run.path_variants)
    _wait_for_traps(run)
    send_signal(told, signal.SIGTERM)
    return bool(told)


def cancel(*runs: Run) -> None:
    """End jobs with all their ranks now: SIGKILL; see `hpcrun.schedulers.Scheduler`.

    Raises:
        HpcrunError: One runs on another host.
    """
    for run in runs:
        _require_this_host(run)
    for run in runs:
        if _is_running(run):
            _wait_for_traps(run)
            send_signal([int(run.submission.job_id)], signal.SIGTERM)  # so that it knows why its ranks end
    for run in runs:
        _kill_processes(run)


def _kill_processes(run: Run) -> None:
    """End the ranks first: a script that still lives then ends by itself, and records it."""
    script, begin = int(run.submission.job_id), time.monotonic()
    left = find_run_pids(*run.path_variants)
    while left and time.monotonic() < begin + KILL_SECONDS:  # a process in the kernel's hands takes its time
        patient = time.monotonic() < begin + GRACE_SECONDS
        send_signal([pid for pid in left if not (patient and pid == script)], signal.SIGKILL)
        time.sleep(0.02)
        left = find_run_pids(*run.path_variants)


def _kill_started(run: Run, deadline: float) -> None:
    """Kill a script that has just begun, with all that it has started."""
    while (left := find_run_pids(*run.path_variants)) and time.monotonic() < deadline:
        send_signal(left, signal.SIGKILL)
        time.sleep(0.02)


def _require_this_host(run: Run) -> None:
    host = run.submission.host
    if host != os.uname().nodename:
        raise HpcrunError(f"job {run.job_id} runs on {host}, not here", hint=f"ssh {host} hpcrun cancel {run.job_id}")
