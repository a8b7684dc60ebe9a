"""The submission of a run to Slurm: the sbatch command, and the handling of its result."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs.states import UNFINISHED_STATES
from hpcrun.jobs.submission_records import write_refusal, write_submission
from hpcrun.schedulers.environment import prefix_slurm_conf
from hpcrun.schedulers.refusals import explain_refusal
from hpcrun.schedulers.slurm_client import SlurmClient, array_id

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.command import CommandResult

_ERROR_PREFIX = "sbatch: error: "
_NOT_SENT_ERROR = re.compile(r"\(connect failure\)|standby mode")
"""Error messages of sbatch if it did not send the job to Slurm (slurm_errno.c)."""

_NO_REPLY = re.compile("timed out|Zero Bytes|Unable to contact slurm controller")
"""Error messages of sbatch after which the job may exist in spite of the error."""


def run_sbatch(run: Run) -> str:
    """Submit the script of a run, and return the output of sbatch.

    A run with a job id is resumed, unless a job in the queue already continues it: sbatch may have submitted that job
    without an answer. Then the output is the id of that job.

    Raises:
        HpcrunError: sbatch refused the job, is not installed, or did not answer.
    """
    if run.job_id and (queued_job_id := _find_queued_job(run)):
        return queued_job_id
    try:
        result = SlurmClient(_find_slurm_conf(run)).request(submission_command(run))
    except HpcrunError as error:
        _record_refusal(run, error.message)
        raise
    if result.code != 0:
        failure, refusal_reason = _explain_failure(run, result)
        if refusal_reason:
            _record_refusal(run, refusal_reason)
        raise failure
    return result.out


def submission_command(run: Run) -> list[str]:
    """Return the sbatch command that submits the script of a run; the job of a resumed run continues its log."""
    log = f"{run.directory.name}.%a/%A_%a_0_log" if run.tasks else "%j_0_log"
    if run.job_id:
        log = f"{run.job_id}_0_log"
    logs = [f"--{stream}={run.directory}/{log}.{end}" for stream, end in (("output", "out"), ("error", "err"))]
    task = [f"--array={run.task_number}"] if run.sweep else []
    # append, because a requeued job continues the same log
    return ["sbatch", "--parsable", "--open-mode=append", *logs, *task, str(_script(run))]


def parse_job_id(run: Run, output: str) -> str:
    """Return the job id in the output of ``sbatch --parsable``.

    Raises:
        HpcrunError: The output contains no job id.
    """
    # --parsable prints id[;cluster] last, possibly after a site's banner
    job_id = output.strip().rpartition("\n")[2].split(";")[0]
    if not job_id.isdigit():
        hint = f"{prefix_slurm_conf(_find_slurm_conf(run), 'squeue --me')} shows whether the job exists"
        raise HpcrunError(f"sbatch printed no job id: {output!r}", hint=hint, exit_code=1)
    return f"{job_id}_{run.task_number}" if run.sweep else job_id


def record_submission(run: Run, job_id: str) -> None:
    """Write ``submitted.json`` for a run, or for all tasks of a sweep; link the log of a resumed run.

    Raises:
        HpcrunError: A file cannot be written; the job was cancelled.
    """
    conf = _find_slurm_conf(run)
    tasks = {task: f"{job_id}_{number}" for number, task in enumerate(run.tasks)}
    shell_conf = run.slurm_conf if not run.spec.site.slurm_conf else None
    try:
        for end in ("out", "err") if run.job_id else ():
            with suppress(FileExistsError):  # the job has started already, and has created the same links
                (run.directory / f"{job_id}_0_log.{end}").symlink_to(f"{run.job_id}_0_log.{end}")
        write_submission(
            {run: job_id, **tasks},
            command=submission_command(run),
            **({"slurm_conf": shell_conf} if shell_conf else {}),
            **({"earlier_job_ids": run.job_ids()} if run.job_id else {}),
        )
    except OSError as error:  # without a record, no command would find the job
        is_cancelled = SlurmClient(conf).request(["scancel", job_id]).code == 0
        outcome = "was cancelled" if is_cancelled else "is in the queue: cancel it"
        message = f"cannot write to {run.directory}: {error.strerror}; job {job_id} {outcome}"
        raise HpcrunError(message, hint="free disk space there, or set HPCRUN_RUN_ROOT", exit_code=1) from None


def _script(run: Run) -> Path:
    """Return the script that sbatch gets: the tasks of a sweep have one script."""
    return (run.sweep or run).directory / "job.sh"


def _find_slurm_conf(run: Run) -> str | None:
    """Return the slurm.conf of the Slurm cluster that gets the job."""
    return run.slurm_conf if run.job_id else run.spec.site.slurm_conf


def _find_queued_job(run: Run) -> str | None:
    """Return the id of a job in the queue that starts the script of a run, and is none of the run's known jobs.

    Raises:
        HpcrunError: Slurm does not answer.
    """
    rows = SlurmClient(run.slurm_conf).query_queue()
    if rows is None:
        hint = f"{prefix_slurm_conf(run.slurm_conf, 'squeue --me')} may say why"
        message = f"Slurm does not answer: another job may continue {run.directory} already"
        raise HpcrunError(message, hint=hint, exit_code=1)
    scripts = [f"{directory}/job.sh" for directory in (run.sweep or run).path_variants]
    task, known_ids = str(run.task_number) if run.sweep else "", run.job_ids()
    for job_id, state, *_, command in rows:
        is_script_of_run = command in scripts and job_id.partition("_")[2] == task
        if is_script_of_run and state in UNFINISHED_STATES and job_id not in known_ids:
            return array_id(job_id)
    return None


def _record_refusal(run: Run, reason: str) -> None:
    """Record why there is no job; a run that cannot be resumed keeps its earlier job."""
    if not run.job_id:
        write_refusal(run, reason)


def _put_errors_first(text: str) -> str:
    """Return the error messages of sbatch, and then what it or its plugins printed besides, such as a banner."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix(_ERROR_PREFIX) for line in lines if line.startswith(_ERROR_PREFIX)]
    others = [line for line in lines if not line.startswith(_ERROR_PREFIX)]
    if not errors:
        return "; ".join(others)
    return "; ".join(errors) + (f" (sbatch also printed: {'; '.join(others)})" if others else "")


def _explain_failure(run: Run, result: CommandResult) -> tuple[HpcrunError, str]:
    """Return the error for a failed sbatch, and the reason why no job exists; empty if the job may exist."""
    conf = _find_slurm_conf(run)
    message = _put_errors_first(result.err)
    if _NOT_SENT_ERROR.search(message):
        hint = f"{prefix_slurm_conf(conf, 'scontrol ping')} shows whether Slurm is up; submit the job again then"
        error_message = f"Slurm cannot be reached, and no job was submitted: {message}"
        return HpcrunError(error_message, hint=hint, exit_code=1), f"Slurm could not be reached: {message}"
    if result.code is None or result.code < 0 or _NO_REPLY.search(message):
        details = message or f"signal {-(result.code or 0)} ended sbatch"
        hint = f"the job may exist in spite of this error: hpcrun status {run.directory}"
        if run.job_id:
            hint += " shows it once it starts; hpcrun resume does not submit it twice"
        return HpcrunError(f"Slurm did not confirm the submission: {details}", hint=hint, exit_code=1), ""
    meaning = explain_refusal(message, run.spec.resources.to_resources(), SlurmClient(conf))
    if meaning:
        message += f"; {meaning.details}" if meaning.details else ""
        hint = meaning.hint
    else:
        hint = f"{prefix_slurm_conf(conf, 'sinfo -s')} lists partitions and nodes; the script is {run.directory}/job.sh"
    return HpcrunError(f"sbatch refused the job: {message}", hint=hint, exit_code=1), f"sbatch refused it: {message}"
