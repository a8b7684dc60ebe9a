"""Slurm: sbatch, scancel, and states from one squeue for all jobs, then sacct where there is any, then exit records."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs.states import State, from_record, stopped
from hpcrun.schedulers.environment import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

_SQUEUE = ["squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%r|%N|%M"]
_SACCT = [
    "sacct",
    "--allocations",
    "--noheader",
    "--parsable2",
    "--format=JobID,State,Reason,NodeList,Elapsed",
    "--jobs",
]

_ENDING = {"RUNNING", "COMPLETING"}  # what Slurm may still say of a job whose script has just ended


def _ask(command: list[str]) -> list[list[str]] | None:
    try:
        answer = subprocess.run(command, env=clean(), capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return [line.split("|") for line in answer.stdout.splitlines() if line.count("|") == 4]


def submit(run: Run) -> str:
    """Submit a run directory's ``job.sh``; see `hpcrun.schedulers.Scheduler`.

    Raises:
        HpcrunError: sbatch refused the job, is not there, or answered nonsense.
    """
    script = run.directory / "job.sh"
    logs = [f"--{stream}={run.directory}/%j_0_log.{end}" for stream, end in (("output", "out"), ("error", "err"))]
    # append: a job that Slurm starts again goes on in the same log
    command = ["sbatch", "--parsable", "--open-mode=append", *logs, str(script)]
    try:
        answer = subprocess.run(command, env=clean(), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        hint = "submit from a login node of the cluster, or use --site local"
        raise HpcrunError("there is no sbatch here", hint=hint, exit_code=1) from None
    if answer.returncode:
        complaint = answer.stderr.strip().replace("sbatch: error: ", "")
        raise HpcrunError(f"sbatch refused the job: {complaint}", hint=f"the script is {script}", exit_code=1)
    # --parsable prints id[;cluster] last; a site's banner may come before it
    job_id = answer.stdout.strip().rpartition("\n")[2].split(";")[0]
    if not job_id.isdigit():
        hint = "squeue --me shows whether the job is there"
        raise HpcrunError(f"sbatch answered {answer.stdout!r}, where a job id was due", hint=hint, exit_code=1)
    run.submitted(job_id, command=command)
    return job_id


def states_of(ids: Sequence[str]) -> dict[str, State]:
    """Return what Slurm itself says of jobs; those it does not know (any more) are left out.

    Args:
        ids: Job ids.
    """
    wanted = set(ids)
    rows = _ask(_SQUEUE) or []
    missing = wanted - {row[0] for row in rows}
    if missing:
        rows += _ask([*_SACCT, ",".join(sorted(missing))]) or []
    # sacct says "CANCELLED by 1000", and "None" for no reason
    return {
        row[0]: State(row[1].split()[0], row[2] if row[2] != "None" else "", row[3], row[4])
        for row in rows
        if row[0] in wanted
    }


def states(runs: Sequence[Run]) -> dict[str, State]:
    """Return the state of each run by its job id; see `hpcrun.schedulers.Scheduler`."""
    told = states_of([run.job_id for run in runs if run.job_id])
    found = {}
    for run in runs:
        ended = run.record()
        if run.job_id in told:
            state = told[run.job_id]
            if ended and (state.finished or (state.name in _ENDING and ended["ended"] and not stopped(ended))):
                own = from_record(ended)
                name = state.name if state.finished else own.name
                state = State(name, own.reason, state.nodes, state.elapsed)
        else:
            state = from_record(ended) if ended else State("UNKNOWN", "Slurm does not know this job (any more)")
        found[run.job_id or ""] = state
    return found


def cancel(run: Run) -> None:
    """End a job with all its ranks (scancel(1): SIGTERM, then SIGKILL after Slurm's KillWait).

    Raises:
        HpcrunError: Slurm refused.
    """
    answer = subprocess.run(["scancel", str(run.job_id)], env=clean(), capture_output=True, text=True, check=False)
    if answer.returncode:
        raise HpcrunError(f"scancel {run.job_id} failed: {answer.stderr.strip()}", hint="hpcrun status tells its state")
