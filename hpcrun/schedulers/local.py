"""Local jobs: the job script runs on this host, detached from the terminal, identified by pid and start time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import safe_reading
from hpcrun.jobs.run_creation import discard_run
from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import State, state_from_record
from hpcrun.jobs.submission_records import write_submission
from hpcrun.nodelist import fold_hosts, is_host_name
from hpcrun.paths import shell_library
from hpcrun.scheduler import Scheduler, UnrecordedJob
from hpcrun.schedulers.environment import command_environment
from hpcrun.schedulers.processes import find_run_pids, send_signal, start_time, user_processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hpcrun.schedulers.processes import Process
    from hpcrun.spec import JobSpec

_START_COMMAND = 'exec bash "$0" >"$1/$$_0_log.out" 2>"$1/$$_0_log.err"'
"""Shell command that starts a script, and names its logs after its pid, so that hpcrun finds the pid without a
record."""

KILL_SECONDS = 10.0
"""Maximum time in seconds for processes to exit after SIGKILL."""

MAX_HOSTFILE_BYTES = 1 << 20

GRACE_SECONDS = 2.0
"""Maximum time in seconds for a script to install its traps, and to exit after its ranks."""


def _start_script(run: Run, **variables: str) -> str:
    keeps_allocation = run.spec.transport == "slurm"
    job_variables = {"HPCRUN_RUN_DIR": str(run.directory), **variables}
    command = ["bash", "-c", _START_COMMAND, str(run.directory / "job.sh"), str(run.directory)]
    process = _start_detached(command, {**(os.environ if keeps_allocation else command_environment()), **job_variables})
    allocation = os.environ.get("SLURM_JOB_ID") if keeps_allocation else None
    write_submission({run: str(process.pid)}, start_time=start_time(process.pid), allocation=allocation)
    return str(process.pid)


def _start_detached(
    command: Sequence[str],
    environment: Mapping[str, str],
    out: int | IO[bytes] = subprocess.DEVNULL,
    err: int | IO[bytes] = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
    )
    threading.Thread(
        target=process.wait, daemon=True
    ).start()  # without the call of wait, the script remains a zombie until hpcrun exits
    return process


def running_scripts() -> dict[str, Process]:
    """Return the processes of the job scripts that run on this host, by run directory."""
    return {
        process.run_directory: process
        for process in user_processes().values()
        if process.run_directory and process.pid == process.session
    }


def _is_running(run: Run) -> bool:
    start_ticks = run.submission.start_time
    return bool(start_ticks) and start_time(int(run.submission.job_id)) == start_ticks


def _wait_for_traps(run: Run) -> None:
    """Wait until a new script has installed its signal handlers and then created exit.json."""
    deadline = time.monotonic() + GRACE_SECONDS
    while _is_running(run) and not (run.directory / "exit.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def _kill_processes(run: Run) -> None:
    """Kill the ranks before the script, so that the script can record their end and exit."""
    script_pid, start = int(run.submission.job_id), time.monotonic()
    pids = find_run_pids(*run.path_variants)
    while pids and time.monotonic() < start + KILL_SECONDS:  # a process in a system call exits only after the call
        keeps_script = time.monotonic() < start + GRACE_SECONDS
        send_signal([pid for pid in pids if not (keeps_script and pid == script_pid)], signal.SIGKILL)
        time.sleep(0.02)
        pids = find_run_pids(*run.path_variants)


def _kill_new_script(run: Run, deadline: float) -> None:
    """Kill a new script and all processes that it has started; give up at the deadline, by `time.monotonic`."""
    while (pids := find_run_pids(*run.path_variants)) and time.monotonic() < deadline:
        send_signal(pids, signal.SIGKILL)
        time.sleep(0.02)


def _require_this_host(run: Run) -> None:
    host = run.submission.host
    if host != os.uname().nodename:
        raise HpcrunError(
            f"job {run.job_id} runs on {host}, not on this host", hint=f"ssh {host} hpcrun cancel {run.job_id}"
        )


def _read_hosts(run: Run) -> str:
    """Return the hosts of the ranks from the job's hostfile, as a node list; empty before the script has written it."""
    lines = safe_reading.read_tail(run.directory / "hostfile", MAX_HOSTFILE_BYTES).splitlines()
    names = (re.split(r"[\s:]", line)[0] for line in lines)
    return fold_hosts(dict.fromkeys(filter(is_host_name, names)))


class LocalScheduler(Scheduler):
    """The scheduler ``local``: job scripts start on this host at once, detached from the terminal."""

    name = title = "local"
    bash_file = shell_library() / "local.bash"
    has_queue = False
    capabilities = frozenset({"sweep"})
    max_poll_seconds = 0.0

    def bash_options(self, spec: JobSpec) -> dict[str, object]:
        """Return the options of local.bash."""
        return {"timeout": spec.time_limit_seconds is not None}

    def submit(self, run: Run) -> str:
        """Start a run's ``job.sh``, or one ``job.sh`` for each task of a sweep.

        Returns:
            The job id. For a sweep, return the directory of the sweep, because its tasks have separate job ids.

        Raises:
            HpcrunError: The job cannot be started or recorded; its processes were killed and its directory was removed.
        """
        try:
            if not run.tasks:
                return _start_script(run)
            for number, task in enumerate(run.tasks):
                _start_script(task, HPCRUN_TASK=str(number))
        except OSError as error:  # without a record, no command would find the job
            for task in run.tasks or [run]:
                _kill_new_script(task, time.monotonic() + KILL_SECONDS)
            discard_run(run)
            message = f"cannot start job {run.name}: {run.directory}: {error.strerror}; its run directory was removed"
            raise HpcrunError(message, hint="free disk space there, or set HPCRUN_RUN_ROOT", exit_code=1) from None
        return str(run.directory)

    def find_unrecorded(self, runs: Sequence[Run]) -> dict[Path, UnrecordedJob | None]:
        """Find the unrecorded jobs of runs among jobs that run or ran on this host."""
        scripts = running_scripts()
        jobs: dict[Path, UnrecordedJob | None] = {}
        for run in runs:
            job_id, record = run.log_job_id, run.exit_record()
            process = scripts.get(str(run.directory))
            if job_id and process:
                jobs[run.directory] = UnrecordedJob(job_id, process.start)
            elif record and job_id:
                jobs[run.directory] = UnrecordedJob(job_id, None, record.host)
            elif not job_id:
                jobs[run.directory] = None
        return jobs

    def query_states(self, runs: Sequence[Run]) -> dict[Run, State]:
        """Return the state of each run."""
        states = {}
        for run in runs:
            is_local = run.submission.host == os.uname().nodename
            # A script writes its record just before it exits, so the record is read after this check.
            is_running = is_local and _is_running(run)
            record = run.exit_record()
            if is_running and not (record and record.ended):
                start = run.last_start()  # like Slurm, count from the last start of a resumed run
                start_time_s = start.started if start else run.submission.submitted
                minutes, seconds = divmod(max(0, int(time.time() - start_time_s)), 60)
                state = State("RUNNING", "", run.submission.host, f"{minutes}:{seconds:02}")
                if run.values and not (run.directory / "hostfile").exists():
                    state = State("PENDING", "other tasks of its sweep are running")
            elif record:
                state = state_from_record(record)
            elif not is_local:
                state = State("UNKNOWN", f"runs on {run.submission.host}", run.submission.host)
            else:
                state = State("FAILED", "the job ended without an exit record", run.submission.host)
            states[run] = replace(state, nodes=_read_hosts(run) or state.nodes)
        return states

    def request_stop(self, run: Run) -> bool:
        """Send SIGTERM to a job.

        Raises:
            HpcrunError: The job runs on another host.
        """
        _require_this_host(run)
        # the script forwards the signal to the launcher, which forwards it to the ranks
        pids = [int(run.submission.job_id)] if _is_running(run) else find_run_pids(*run.path_variants)
        _wait_for_traps(run)
        send_signal(pids, signal.SIGTERM)
        return bool(pids)

    def cancel(self, *runs: Run) -> None:
        """Kill jobs with all their ranks.

        Raises:
            HpcrunError: A job runs on another host.
        """
        for run in runs:
            _require_this_host(run)
        for run in runs:
            if _is_running(run):
                _wait_for_traps(run)
                # after SIGTERM, the script records why its ranks end
                send_signal([int(run.submission.job_id)], signal.SIGTERM)
        for run in runs:
            _kill_processes(run)

    def resume(self, run: Run) -> str:
        """Start the script of a stopped run again.

        Raises:
            HpcrunError: The script did not start.
        """
        task_variable = {"HPCRUN_TASK": str(run.task_number)} if run.sweep else {}
        logs = [run.directory / f"{run.job_id}_0_log.{end}" for end in ("out", "err")]
        variables = {**command_environment(), "HPCRUN_RUN_DIR": str(run.directory), **task_variable}
        with logs[0].open("ab") as out, logs[1].open("ab") as err:
            process = _start_detached(["bash", str((run.sweep or run).directory / "job.sh")], variables, out, err)
        deadline = time.monotonic() + KILL_SECONDS
        while Run(run.directory).job_id != str(process.pid):  # the script records its pid as the run's job id
            if process.poll() is not None or time.monotonic() > deadline:
                raise HpcrunError(f"{run.directory}/job.sh did not start", hint=f"{logs[1]} may say why")
            time.sleep(0.01)
        return str(process.pid)

    def rerun_command(self, run: Run) -> str:
        """Return the command line that runs a job's script again."""
        if not run.sweep:
            return f"bash {run.directory}/job.sh"
        return f"HPCRUN_TASK={run.task_number} bash {run.sweep.directory}/job.sh"


SCHEDULER = LocalScheduler()
