"""Slurm: sbatch, scancel, and states from one squeue for all jobs, then sacct where there is any, then exit records."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.jobs import inferred_state
from hpcrun.jobs.dependencies import parse_dependency
from hpcrun.jobs.runs import write_refusal, write_submission
from hpcrun.jobs.states import UNFINISHED_STATES, UNKNOWN_JOB_REASON, State, state_from_record
from hpcrun.schedulers.environment import command_environment, prefix_slurm_conf, require_slurm_conf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hpcrun.jobs.runs import Run

_SQUEUE = ["squeue", "--me", "--array", "--states=all", "--noheader", "--format=%i|%T|%r|%N|%M|%l|%o"]
_SACCT = ["sacct", "--allocations", "--noheader", "--parsable2"]
_FIELDS = "--format=JobID,State,Reason,NodeList,Elapsed,Timelimit"

_NOT_SENT = re.compile(r"\(connect failure\)|standby mode")
"""What sbatch says where it has sent nothing (slurm_errno.c)."""

_NO_REPLY = re.compile("timed out|Zero Bytes|Unable to contact slurm controller")
"""What it says, otherwise, where the job may have been taken all the same."""

_LAGGING_STATES = {"RUNNING", "COMPLETING"}  # what Slurm may still say of a job whose script has just ended


def _run(command: list[str], conf: str | None, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    require_slurm_conf(conf)
    try:
        return subprocess.run(
            command, env=command_environment(conf), capture_output=True, text=True, check=False, timeout=seconds
        )
    except FileNotFoundError:
        raise _missing_program(command[0]) from None


def _missing_program(program: str) -> HpcrunError:
    hint = "work on a login node of the cluster, or use --site local"
    return HpcrunError(f"there is no {program} here", hint=hint, exit_code=1)


def output_lines(command: list[str], conf: str | None, seconds: float = 60) -> list[str] | None:
    """Return the lines that one of Slurm's commands prints; None where it does not answer.

    Args:
        command: Its words.
        conf: The slurm.conf of the Slurm that is asked; None: SLURM_CONF or Slurm itself says which.
        seconds: For an answer.
    """
    try:
        answer = _run(command, conf, seconds)
    except (HpcrunError, OSError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else answer.stdout.splitlines()


def _group_by_slurm(runs: Iterable[Run]) -> dict[str | None, list[Run]]:
    """Return runs by the Slurm that has their jobs: one login node may reach several."""
    found: dict[str | None, list[Run]] = {}
    for run in runs:
        found.setdefault(run.slurm_conf, []).append(run)
    return found


def _query_rows(command: list[str], conf: str | None) -> list[list[str]] | None:
    """Return what squeue or sacct says of jobs: id, state, reason, nodes, elapsed, limit, and if known the command."""
    told = output_lines(command, conf)
    return None if told is None else [[*line.split("|", 6), "", ""][:7] for line in told if line.count("|") >= 4]


def require_sbatch(run: Run) -> None:
    """Refuse to submit where there is no sbatch, or no such configuration of Slurm, and write that down.

    Raises:
        HpcrunError: Says what is not there.
    """
    try:
        require_slurm_conf(run.spec.site.slurm_conf)
        if not shutil.which("sbatch"):
            raise _missing_program("sbatch")
    except HpcrunError as error:
        write_refusal(run, error.message)
        raise


def submission_command(run: Run) -> list[str]:
    """Return the sbatch command that submits a run directory's ``job.sh``."""
    log = f"{run.directory.name}.%a/%A_%a_0_log" if run.tasks else "%j_0_log"
    logs = [f"--{stream}={run.directory}/{log}.{end}" for stream, end in (("output", "out"), ("error", "err"))]
    # append: a job that Slurm starts again goes on in the same log
    return ["sbatch", "--parsable", "--open-mode=append", *logs, str(run.directory / "job.sh")]


def parse_job_id(output: str, conf: str | None) -> str:
    """Return the job id that ``sbatch --parsable`` has printed.

    Raises:
        HpcrunError: There is none.
    """
    # --parsable prints id[;cluster] last; a site's banner may come before it
    job_id = output.strip().rpartition("\n")[2].split(";")[0]
    if not job_id.isdigit():
        hint = f"{prefix_slurm_conf(conf, 'squeue --me')} shows whether the job is there"
        raise HpcrunError(f"sbatch answered {output!r}, where a job id was due", hint=hint, exit_code=1)
    return job_id


def record_submission(run: Run, job_id: str) -> None:
    """Write ``submitted.json`` for a run, or for all tasks of a sweep.

    Raises:
        HpcrunError: It cannot be written; the job is cancelled then.
    """
    conf = run.spec.site.slurm_conf
    tasks = {task: f"{job_id}_{number}" for number, task in enumerate(run.tasks)}
    facts = {} if conf or "SLURM_CONF" not in os.environ else {"slurm_conf": os.environ["SLURM_CONF"]}
    try:
        write_submission({run: job_id, **tasks}, command=submission_command(run), **facts)
    except OSError as error:  # nothing of hpcrun's would find the job again
        cancelled = not _run(["scancel", job_id], conf).returncode
        now = "was cancelled again" if cancelled else "is in the queue: cancel it"
        message = f"{run.directory} cannot be written to: {error.strerror}; job {job_id} {now}"
        raise HpcrunError(message, hint="make room there, or set HPCRUN_RUN_ROOT", exit_code=1) from None


def submission_error(run: Run, answer: subprocess.CalledProcessError) -> HpcrunError:
    """Return the error of an sbatch that failed; ``refused.json`` is written where there is no job for certain."""
    conf = run.spec.site.slurm_conf
    complaint = answer.stderr.strip().replace("sbatch: error: ", "")
    if _NOT_SENT.search(complaint):
        write_refusal(run, f"Slurm could not be reached: {complaint}")
        hint = f"{prefix_slurm_conf(conf, 'scontrol ping')} tells whether Slurm is up; submit the job again when it is"
        return HpcrunError(f"Slurm cannot be reached, and there is no job: {complaint}", hint=hint, exit_code=1)
    if answer.returncode < 0 or _NO_REPLY.search(complaint):
        how = complaint or f"signal {-answer.returncode} ended sbatch"
        hint = f"there may be a job all the same: hpcrun status {run.directory}"
        return HpcrunError(f"Slurm was asked to take the job, and gave no answer: {how}", hint=hint, exit_code=1)
    write_refusal(run, f"sbatch refused it: {complaint}")
    lists = prefix_slurm_conf(conf, "sinfo -o '%P %D %c %m %G %l'")
    hint = f"{lists} lists partitions, nodes, cores, memory, GPUs, time; the script is {run.directory}/job.sh"
    return HpcrunError(f"sbatch refused the job: {complaint}", hint=hint, exit_code=1)


def find_unrecorded(runs: Sequence[Run]) -> dict[Path, dict[str, Any] | None]:
    """Find jobs by their logs, and those that wait by the scripts that they run; see `hpcrun.schedulers.Scheduler`."""
    found: dict[Path, dict[str, Any] | None] = {}
    for conf, together in _group_by_slurm(runs).items():
        found |= _find_unrecorded(together, conf)
    return found


def _find_unrecorded(runs: Sequence[Run], conf: str | None) -> dict[Path, dict[str, Any] | None]:
    """Do what `find_unrecorded` does, for runs of one Slurm."""
    known = {run: run.log_job_id for run in runs}
    rows = [] if all(known.values()) else _query_rows(_SQUEUE, conf)
    jobs = {(command, job_id.partition("_")[2]): job_id for job_id, *_, command in rows or []}
    found: dict[Path, dict[str, Any] | None] = {}
    for run in runs:
        folder = (run.sweep or run).directory
        task = str(run.task_number) if run.sweep else ""
        script = f"{folder}/job.sh"
        if job_id := known[run] or jobs.get((script, task)):
            found[run.directory] = {"job_id": job_id, "command": [script]}
        elif rows is not None:
            found[run.directory] = None
    return found


def _query_jobs(ids: Iterable[str], conf: str | None) -> dict[str, tuple[State, str]] | None:
    """Return what a Slurm says of this user's jobs, each with its command; None where it does not answer.

    Args:
        ids: Job ids that matter.
        conf: Its slurm.conf.
    """
    rows = _query_rows(_SQUEUE, conf)
    if rows is None:
        return None
    if missing := sorted({_array_id(job_id) for job_id in set(ids) - {row[0] for row in rows}}):
        asked = ([*_SACCT, columns, "--jobs", ",".join(missing)] for columns in (f"{_FIELDS},SubmitLine", _FIELDS))
        # before 21.08, sacct has no SubmitLine; where both know a job, squeue is ahead
        kept = next((answer for command in asked if (answer := _query_rows(command, conf)) is not None), [])
        rows = [*map(_accounting_row, kept), *rows]
    # sacct says "CANCELLED by 1000", and "None" for no reason
    return {
        job_id: (State(state.split()[0], reason if reason != "None" else "", nodes, elapsed, limit), command)
        for job_id, state, reason, nodes, elapsed, limit, command in rows
    }


def _array_id(job_id: str) -> str:
    """Return the id of the array that a job is a task of; any other job's own."""
    return job_id.partition("_")[0]


def _accounting_row(row: list[str]) -> list[str]:
    """Return what accounting says of a job that is not in the queue; it may not have heard of the end."""
    job_id, state, _, nodes, elapsed, limit, command = row
    if state == "PREEMPTED":  # as which a job ends that may not be queued again
        return [job_id, "CANCELLED", "preempted", nodes, elapsed, limit, command]
    if state.split()[0] not in UNFINISHED_STATES:
        return row
    return [
        job_id,
        "UNKNOWN",
        f"{UNKNOWN_JOB_REASON}, though its accounting has it as {state}",
        nodes,
        "",
        limit,
        command,
    ]


def _is_job_of_run(run: Run, command: str) -> bool:
    """Return whether a job's command is a run's: another cluster, or this one years later, has jobs of the same ids."""
    script = run.submission.command[-1] if run.submission.command else ""
    return not command or script in command


def query_job_states(ids: Sequence[str], conf: str | None) -> dict[str, State] | None:
    """Return what Slurm itself says of jobs; those it does not know (any more) are left out. None: it does not answer.

    Args:
        ids: Job ids.
        conf: The slurm.conf of the Slurm that is asked.
    """
    jobs = _query_jobs(ids, conf)
    return None if jobs is None else {job_id: jobs[job_id][0] for job_id in ids if job_id in jobs}


def query_states(runs: Sequence[Run]) -> dict[Run, State]:
    """Return the state of each run, with one query per Slurm; see `hpcrun.schedulers.Scheduler`."""
    found: dict[Run, State] = {}
    for conf, together in _group_by_slurm(runs).items():
        found |= _query_states(together, conf)
    return found


def _query_states(runs: Sequence[Run], conf: str | None) -> dict[Run, State]:
    """Do what `states` does, for runs of one Slurm."""
    answer = _query_jobs((run.job_id for run in runs if run.job_id), conf)
    jobs = answer or {}
    arrays = {_array_id(job_id): command for job_id, (_, command) in jobs.items()}
    unknown = "Slurm does not answer" if answer is None else UNKNOWN_JOB_REASON
    found = {}
    for run in runs:
        job_id, ended = run.job_id or "", run.exit_record()
        lost = ended and job_id in jobs and jobs[job_id][0].name == "UNKNOWN"
        if job_id in jobs and not lost and _is_job_of_run(run, jobs[job_id][1]):
            state = jobs[job_id][0]
            # of a job that went back to the queue, Slurm knows more than what it wrote when it did
            own = ended if ended and not ended.requeued else None
            if own and (state.finished or (state.name in _LAGGING_STATES and own.ended and not own.may_restart)):
                said = state_from_record(own)
                name = state.name if state.finished else said.name
                state = replace(state, name=name, reason=said.reason)
        elif not (ended and ended.requeued) and (left := inferred_state.infer_state(run, ended)):
            state = left
        elif run.values and _is_job_of_run(run, arrays.get(_array_id(job_id), "unknown")) and not _has_started(run):
            state = State("CANCELLED", "cancelled while it waited")  # Slurm keeps nothing of such a task
        else:
            state = State("UNKNOWN", unknown)
        found[run] = state
    return found


def _has_started(run: Run) -> bool:
    log = run.log()
    return bool(log and log.exists())


def dependency_warnings(dependency: str, conf: str | None) -> list[str]:
    """Return what is odd about a dependency, as far as Slurm tells: it takes any id, and waits for nothing or for ever.

    Args:
        dependency: As sbatch takes it.
        conf: The slurm.conf of the Slurm that is asked.
    """
    conditions = parse_dependency(dependency)
    jobs = _query_jobs((job_id for _, job_id in conditions), conf) if conditions else {}
    if jobs is None:
        return []
    known, found = {*jobs, *map(_array_id, jobs)}, []
    for kind, job_id in conditions:
        state = jobs[job_id][0] if job_id in jobs else None
        if job_id not in known:
            found.append(f"Slurm tells you of no job {job_id}: if there is none, {kind}:{job_id} waits for nothing")
        elif kind == "afterok" and state and state.finished and state.name != "COMPLETED":
            found.append(f"job {job_id} ended {state.name}: {kind}:{job_id} can never be satisfied")
    return found


def request_stop(run: Run) -> bool:
    """Ask a job to end by itself; see `hpcrun.schedulers.Scheduler`."""
    if "restart" not in run.spec.site.raw:  # the script of an older version would die of this signal
        return False
    # the script alone is told (its trap says what it does), and passes it on as its launcher can
    return _run(["scancel", "--batch", "--signal=USR1", str(run.job_id)], run.slurm_conf).returncode == 0


def cancel(*runs: Run) -> None:
    """End jobs with all their ranks now; see `hpcrun.schedulers.Scheduler`.

    Raises:
        HpcrunError: Slurm refused, is not there, or has another job of such an id.
    """
    for conf, together in _group_by_slurm(runs).items():
        _cancel(together, conf)


def _cancel(runs: Sequence[Run], conf: str | None) -> None:
    """Do what `cancel` does, for jobs of one Slurm."""
    jobs = _query_jobs([], conf) or {}
    for run in runs:
        job = jobs.get(run.job_id or "")
        if job and not _is_job_of_run(run, job[1]):
            hint = f"it may be another cluster's: work on a login node of the one that {run.name} was submitted to"
            raise HpcrunError(f"Slurm's job {run.job_id} is not {run.directory}, but {job[1]}", hint=hint, exit_code=1)
    answer = _run(["scancel", *(str(run.job_id) for run in runs)], conf)
    if answer.returncode:
        complaint = answer.stderr.strip() or f"exit code {answer.returncode}"
        ids = " ".join(str(run.job_id) for run in runs[:5]) + " ..." * (len(runs) > 5)
        raise HpcrunError(f"scancel {ids} failed: {complaint}", hint="hpcrun status tells its state")
