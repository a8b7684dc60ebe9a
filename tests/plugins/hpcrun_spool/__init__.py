"""A scheduler of another package: a queue of this host that runs one job at a time."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hpcrun.jobs.states import State, state_from_record
from hpcrun.jobs.submission_records import write_submission
from hpcrun.scheduler import Scheduler, UnrecordedJob
from hpcrun.schedulers.processes import find_run_pids, send_signal, start_time

RUN_IN_TURN = 'exec {slot}>>"$0" && flock "$slot" && exec bash "$1/job.sh" >"$1/$2_0_log.out" 2>"$1/$2_0_log.err"'


def spool_folder():
    """Return the folder with one file for each job: its process and run directory."""
    folder = Path(os.environ["SPOOL_FOLDER"])
    folder.mkdir(exist_ok=True)
    return folder


def is_session_leader(pid):
    """Return whether a process is its session's first one; False if it has ended."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def enqueue(directory):
    """Put the script of a run directory into the queue, and return the job id."""
    folder = spool_folder()
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job_id = str(len(list(folder.glob("*.json"))) + 1)
        process = subprocess.Popen(
            ["bash", "-c", RUN_IN_TURN, str(folder / "slot"), str(directory), job_id],
            env={**os.environ, "SPOOL_JOB_ID": job_id, "HPCRUN_RUN_DIR": str(directory)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        job = {"pid": process.pid, "start": start_time(process.pid), "directory": str(directory)}
        (folder / f"{job_id}.json").write_text(json.dumps(job))
    return job_id


def is_alive(job_id):
    """Return whether a job waits or runs."""
    job = json.loads((spool_folder() / f"{job_id}.json").read_text())
    return start_time(job["pid"]) == job["start"]


class SpoolScheduler(Scheduler):
    name, title = "spool", "the spool"
    transport = "host"
    max_poll_seconds = 0.1
    nodelist_variables = {"SPOOL_HOSTS": lambda environ, name: dict.fromkeys(environ[name].split(","), 1)}  # noqa: RUF012
    templates = Path(__file__).parent / "templates"
    bash_file = Path(__file__).parent / "spool.bash"

    def directives(self, spec):
        return [f"--name={spec.name}"]

    def bash_options(self, spec):
        return {"queue": "the main one"}

    def submit(self, run):
        job_id = enqueue(run.directory)
        write_submission({run: job_id})
        return job_id

    def find_unrecorded(self, runs):
        jobs = {json.loads(file.read_text())["directory"]: file.stem for file in spool_folder().glob("*.json")}
        return {run.directory: UnrecordedJob(job) if (job := jobs.get(str(run.directory))) else None for run in runs}

    def query_states(self, runs):
        return {run: self._query_state(run) for run in runs}

    def _query_state(self, run):
        record = run.exit_record()
        if is_alive(run.job_id) and not (record and record.ended):
            started = (run.directory / "starts.jsonl").exists()
            return State("RUNNING", "", run.submission.host) if started else State("PENDING", "Resources")
        return state_from_record(record) if record else State("CANCELLED", "cancelled while pending")

    def request_stop(self, run):
        pids = find_run_pids(*run.path_variants)
        send_signal(filter(is_session_leader, pids), signal.SIGTERM)
        return bool(pids)

    def cancel(self, *runs):
        for run in runs:
            while pids := find_run_pids(*run.path_variants):
                send_signal(pids, signal.SIGKILL)
                time.sleep(0.02)

    def rerun_command(self, run):
        return f"{sys.executable} -m hpcrun_spool {run.directory}"


SCHEDULER = SpoolScheduler()
