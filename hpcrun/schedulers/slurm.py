"""Slurm: sbatch, scancel, and states from one squeue for all jobs, then sacct where there is any, then exit records."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
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


def _call(command: list[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).exists():  # Slurm's commands would wait for it for a minute
        hint = "unset SLURM_CONF, or start that cluster"
        raise HpcrunError(f"SLURM_CONF={conf} is not there", hint=hint, exit_code=1)
    try:
        return subprocess.run(command, env=clean(), capture_output=True, text=True, check=False, timeout=seconds)
    except FileNotFoundError:
        hint = "work on a login node of the cluster, or use --site local"
        raise HpcrunError(f"there is no {command[0]} here", hint=hint, exit_code=1) from None


def _ask(command: list[str]) -> list[list[str]] | None:
    try:
        answer = _call(command, seconds=60)
    except (HpcrunError, OSError, subprocess.TimeoutExpired):
        return None
    rows = [line.split("|") for line in answer.stdout.splitlines() if line.count("|") == 4]
    return None if answer.returncode else rows


def submit(run: Run) -> str:
    """Submit a run directory's ``job.sh``; see `hpcrun.schedulers.Scheduler`.

    Raises:
        HpcrunError: sbatch refused the job, is not there, or answered nonsense.
    """
    script = run.directory / "job.sh"
    logs = [f"--{stream}={run.directory}/%j_0_log.{end}" for stream, end in (("output", "out"), ("error", "err"))]
    # append: a job that Slurm starts again goes on in the same log
    command = ["sbatch", "--parsable", "--open-mode=append", *logs, str(script)]
    answer = _call(command)
    if answer.returncode:
        complaint = answer.stderr.strip().replace("sbatch: error: ", "")
        hint = (
            f"sinfo -o '%P %D %c %m %G %l' lists partitions, nodes, cores, memory, GPUs, time; the script is {script}"
        )
        raise HpcrunError(f"sbatch refused the job: {complaint}", hint=hint, exit_code=1)
    # --parsable prints id[;cluster] last; a site's banner may come before it
    job_id = answer.stdout.strip().rpartition("\n")[2].split(";")[0]
    if not job_id.isdigit():
        hint = "squeue --me shows whether the job is there"
        raise HpcrunError(f"sbatch answered {answer.stdout!r}, where a job id was due", hint=hint, exit_code=1)
    run.submitted(job_id, command=command)
    return job_id


def states_of(ids: Sequence[str]) -> dict[str, State] | None:
    """Return what Slurm itself says of jobs; those it does not know (any more) are left out. None: it does not answer.

    Args:
        ids: Job ids.
    """
    wanted = set(ids)
    rows = _ask(_SQUEUE)
    if rows is None:
        return None
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
    answer = states_of([run.job_id for run in runs if run.job_id])
    told = answer or {}
    unknown = "Slurm does not answer" if answer is None else "Slurm does not know this job (any more)"
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
            state = from_record(ended) if ended else State("UNKNOWN", unknown)
        found[run.job_id or ""] = state
    return found


def cancel(run: Run) -> None:
    """End a job with all its ranks (scancel(1): SIGTERM, then SIGKILL after Slurm's KillWait).

    Raises:
        HpcrunError: Slurm refused, or is not there.
    """
    answer = _call(["scancel", str(run.job_id)])
    if answer.returncode:
        raise HpcrunError(f"scancel {run.job_id} failed: {answer.stderr.strip()}", hint="hpcrun status tells its state")
