"""Slurm jobs: their submission, their states from squeue, sacct and exit records, and their end."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.jobs import inferred_state
from hpcrun.jobs.dependencies import parse_dependency
from hpcrun.jobs.runs import write_refusal, write_submission
from hpcrun.jobs.states import UNKNOWN_JOB_REASON, State, state_from_record
from hpcrun.schedulers.environment import prefix_slurm_conf
from hpcrun.schedulers.slurm_client import SlurmClient, array_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.command import CommandResult

_NOT_SENT = re.compile(r"\(connect failure\)|standby mode")
"""Messages of an sbatch that did not send the job (slurm_errno.c)."""

_NO_REPLY = re.compile("timed out|Zero Bytes|Unable to contact slurm controller")
"""Other messages of sbatch after which the job may exist."""

_LAGGING_STATES = {"RUNNING", "COMPLETING"}  # Slurm's possible states of a job whose script has just ended


def _group_by_slurm(runs: Iterable[Run]) -> dict[str | None, list[Run]]:
    """Group runs by the slurm.conf of their jobs: a login node may have access to several Slurms."""
    found: dict[str | None, list[Run]] = {}
    for run in runs:
        found.setdefault(run.slurm_conf, []).append(run)
    return found


def run_sbatch(run: Run, command: list[str]) -> str:
    """Run the sbatch command of a run, and return its output.

    Raises:
        HpcrunError: sbatch refused the job, is not installed, or did not answer.
    """
    try:
        answer = SlurmClient(run.spec.site.slurm_conf).request(command)
    except HpcrunError as error:
        write_refusal(run, error.message)
        raise
    if answer.code != 0:
        raise _submission_error(run, answer)
    return answer.out


def submission_command(run: Run, script: Path) -> list[str]:
    """Return the sbatch command that submits the script of a run."""
    log = f"{run.directory.name}.%a/%A_%a_0_log" if run.tasks else "%j_0_log"
    logs = [f"--{stream}={run.directory}/{log}.{end}" for stream, end in (("output", "out"), ("error", "err"))]
    # append: a requeued job continues the same log
    return ["sbatch", "--parsable", "--open-mode=append", *logs, str(script)]


def parse_job_id(output: str, conf: str | None) -> str:
    """Return the job id in the output of ``sbatch --parsable``.

    Raises:
        HpcrunError: The output contains no job id.
    """
    # --parsable prints id[;cluster] last, possibly after a site's banner
    job_id = output.strip().rpartition("\n")[2].split(";")[0]
    if not job_id.isdigit():
        hint = f"{prefix_slurm_conf(conf, 'squeue --me')} shows whether the job exists"
        raise HpcrunError(f"sbatch printed no job id: {output!r}", hint=hint, exit_code=1)
    return job_id


def record_submission(run: Run, job_id: str) -> None:
    """Write ``submitted.json`` for a run, or for all tasks of a sweep.

    Raises:
        HpcrunError: The file cannot be written; the job is cancelled then.
    """
    conf = run.spec.site.slurm_conf
    tasks = {task: f"{job_id}_{number}" for number, task in enumerate(run.tasks)}
    facts = {} if conf or "SLURM_CONF" not in os.environ else {"slurm_conf": os.environ["SLURM_CONF"]}
    try:
        write_submission({run: job_id, **tasks}, command=submission_command(run, run.directory / "job.sh"), **facts)
    except OSError as error:  # without a record, no command finds the job
        cancelled = SlurmClient(conf).request(["scancel", job_id]).code == 0
        outcome = "was cancelled" if cancelled else "is in the queue: cancel it"
        message = f"cannot write to {run.directory}: {error.strerror}; job {job_id} {outcome}"
        raise HpcrunError(message, hint="free disk space there, or set HPCRUN_RUN_ROOT", exit_code=1) from None


def _submission_error(run: Run, answer: CommandResult) -> HpcrunError:
    """Return the error for a failed sbatch, and write ``refused.json`` if it certainly submitted no job."""
    conf = run.spec.site.slurm_conf
    message = answer.err.strip().replace("sbatch: error: ", "")
    if _NOT_SENT.search(message):
        write_refusal(run, f"Slurm could not be reached: {message}")
        hint = f"{prefix_slurm_conf(conf, 'scontrol ping')} shows whether Slurm is up; submit the job again then"
        return HpcrunError(f"Slurm cannot be reached, and no job was submitted: {message}", hint=hint, exit_code=1)
    if answer.code is None or answer.code < 0 or _NO_REPLY.search(message):
        details = message or f"signal {-(answer.code or 0)} ended sbatch"
        hint = f"the job may exist all the same: hpcrun status {run.directory}"
        return HpcrunError(f"Slurm did not confirm the submission: {details}", hint=hint, exit_code=1)
    write_refusal(run, f"sbatch refused it: {message}")
    lists = prefix_slurm_conf(conf, "sinfo -o '%P %D %c %m %G %l'")
    hint = f"{lists} lists partitions, nodes, cores, memory, GPUs, time; the script is {run.directory}/job.sh"
    return HpcrunError(f"sbatch refused the job: {message}", hint=hint, exit_code=1)


def find_unrecorded(runs: Sequence[Run]) -> dict[Path, dict[str, Any] | None]:
    """Find jobs by their logs, and pending jobs by their scripts; see `hpcrun.schedulers.Scheduler`."""
    found: dict[Path, dict[str, Any] | None] = {}
    for conf, group in _group_by_slurm(runs).items():
        found |= _find_unrecorded(group, conf)
    return found


def _find_unrecorded(runs: Sequence[Run], conf: str | None) -> dict[Path, dict[str, Any] | None]:
    """Find the unrecorded jobs of one Slurm."""
    ids = {run: run.log_job_id for run in runs}
    rows = [] if all(ids.values()) else SlurmClient(conf).query_queue()
    jobs = {(command, job_id.partition("_")[2]): job_id for job_id, *_, command in rows or []}
    found: dict[Path, dict[str, Any] | None] = {}
    for run in runs:
        folder = (run.sweep or run).directory
        task = str(run.task_number) if run.sweep else ""
        script = f"{folder}/job.sh"
        if job_id := ids[run] or jobs.get((script, task)):
            found[run.directory] = {"job_id": job_id, "command": [script]}
        elif rows is not None:
            found[run.directory] = None
    return found


def _is_job_of_run(run: Run, command: str) -> bool:
    """Return whether a job runs the script of a run: another cluster, or this one later, may use the same job id."""
    script = run.submission.command[-1] if run.submission.command else ""
    return not command or script in command


def query_states(runs: Sequence[Run]) -> dict[Run, State]:
    """Return the state of each run, by one query of each Slurm; see `hpcrun.schedulers.Scheduler`."""
    found: dict[Run, State] = {}
    for conf, group in _group_by_slurm(runs).items():
        found |= _query_states(group, conf)
    return found


def _query_states(runs: Sequence[Run], conf: str | None) -> dict[Run, State]:
    """Return the states of runs of one Slurm."""
    answer = SlurmClient(conf).query_jobs(run.job_id for run in runs if run.job_id)
    jobs = answer or {}
    arrays = {array_id(job_id): command for job_id, (_, command) in jobs.items()}
    unknown = "Slurm does not answer" if answer is None else UNKNOWN_JOB_REASON
    found = {}
    for run in runs:
        job_id, ended = run.job_id or "", run.exit_record()
        lost = ended and job_id in jobs and jobs[job_id][0].name == "UNKNOWN"
        if job_id in jobs and not lost and _is_job_of_run(run, jobs[job_id][1]):
            state = jobs[job_id][0]
            # The exit record of a requeued job is older than Slurm's state.
            final = ended if ended and not ended.requeued else None
            if final and (state.finished or (state.name in _LAGGING_STATES and final.ended and not final.may_restart)):
                recorded = state_from_record(final)
                name = state.name if state.finished else recorded.name
                state = replace(state, name=name, reason=recorded.reason)
        elif not (ended and ended.requeued) and (last_known := inferred_state.infer_state(run, ended)):
            state = last_known
        elif run.values and _is_job_of_run(run, arrays.get(array_id(job_id), "unknown")) and not _has_started(run):
            state = State("CANCELLED", "cancelled while pending")  # Slurm keeps no record of such a task
        else:
            state = State("UNKNOWN", unknown)
        found[run] = state
    return found


def _has_started(run: Run) -> bool:
    log = run.log()
    return bool(log and log.exists())


def dependency_warnings(dependency: str, conf: str | None) -> list[str]:
    """Return warnings about a dependency: Slurm accepts any job id, and then does not wait, or waits for ever.

    Args:
        dependency: In sbatch's format.
        conf: The slurm.conf of the Slurm to query.
    """
    conditions = parse_dependency(dependency)
    jobs = SlurmClient(conf).query_jobs(job_id for _, job_id in conditions) if conditions else {}
    if jobs is None:
        return []
    known, warnings = {*jobs, *map(array_id, jobs)}, []
    for kind, job_id in conditions:
        state = jobs[job_id][0] if job_id in jobs else None
        if job_id not in known:
            warnings.append(f"Slurm does not list job {job_id}: if it does not exist, {kind}:{job_id} does not wait")
        elif kind == "afterok" and state and state.finished and state.name != "COMPLETED":
            warnings.append(f"job {job_id} ended {state.name}: {kind}:{job_id} can never be satisfied")
    return warnings


def request_stop(run: Run) -> bool:
    """Send SIGUSR1 to a job's script; see `hpcrun.schedulers.Scheduler`."""
    if "restart" not in run.spec.site.raw:  # this signal would kill the script of an older version
        return False
    # only the script receives the signal; its trap forwards it in the launcher's way
    command = ["scancel", "--batch", "--signal=USR1", str(run.job_id)]
    return SlurmClient(run.slurm_conf).request(command).code == 0


def cancel(*runs: Run) -> None:
    """Cancel jobs with all their ranks; see `hpcrun.schedulers.Scheduler`.

    Raises:
        HpcrunError: Slurm refused, is not installed, or has another job of the same id.
    """
    for conf, group in _group_by_slurm(runs).items():
        _cancel(group, conf)


def _cancel(runs: Sequence[Run], conf: str | None) -> None:
    """Cancel jobs of one Slurm."""
    client = SlurmClient(conf)
    jobs = client.query_jobs([]) or {}
    for run in runs:
        job = jobs.get(run.job_id or "")
        if job and not _is_job_of_run(run, job[1]):
            hint = f"the id may be another cluster's: use a login node of the cluster that {run.name} was submitted to"
            raise HpcrunError(
                f"Slurm's job {run.job_id} runs {job[1]}, not {run.directory}/job.sh", hint=hint, exit_code=1
            )
    answer = client.request(["scancel", *(str(run.job_id) for run in runs)])
    if answer.code != 0:
        message = answer.err.strip() or f"exit code {answer.code}"
        ids = " ".join(str(run.job_id) for run in runs[:5]) + " ..." * (len(runs) > 5)
        raise HpcrunError(f"scancel {ids} failed: {message}", hint="hpcrun status shows the state of a job")
