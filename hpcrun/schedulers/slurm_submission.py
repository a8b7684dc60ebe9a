"""The submission of a run to Slurm: the sbatch command, and the handling of its result."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs.submission_records import write_refusal, write_submission
from hpcrun.schedulers.environment import prefix_slurm_conf
from hpcrun.schedulers.refusals import explain_refusal
from hpcrun.schedulers.slurm_client import SlurmClient

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.command import CommandResult

_NOT_SENT_ERROR = re.compile(r"\(connect failure\)|standby mode")
"""Error messages of sbatch if it did not send the job to Slurm (slurm_errno.c)."""

_NO_REPLY = re.compile("timed out|Zero Bytes|Unable to contact slurm controller")
"""Error messages of sbatch after which the job may exist in spite of the error."""


def run_sbatch(run: Run, command: list[str]) -> str:
    """Run the sbatch command of a run, and return its output.

    Raises:
        HpcrunError: sbatch refused the job, is not installed, or did not answer.
    """
    try:
        result = SlurmClient(run.spec.site.slurm_conf).request(command)
    except HpcrunError as error:
        write_refusal(run, error.message)
        raise
    if result.code != 0:
        failure, refusal_reason = _explain_failure(run, result)
        if refusal_reason:
            write_refusal(run, refusal_reason)
        raise failure
    return result.out


def submission_command(run: Run, script: Path) -> list[str]:
    """Return the sbatch command that submits the script of a run."""
    log = f"{run.directory.name}.%a/%A_%a_0_log" if run.tasks else "%j_0_log"
    logs = [f"--{stream}={run.directory}/{log}.{end}" for stream, end in (("output", "out"), ("error", "err"))]
    # append, because a requeued job continues the same log
    return ["sbatch", "--parsable", "--open-mode=append", *logs, str(script)]


def resume(run: Run) -> str:
    """Submit the script of a stopped run again, and record the new job as the job of the run.

    Raises:
        HpcrunError: sbatch refused the job, is not installed, or did not answer.
    """
    logs = {end: run.directory / f"{run.job_id}_0_log.{end}" for end in ("out", "err")}
    options = [f"--output={logs['out']}", f"--error={logs['err']}"]
    array_option = [f"--array={run.task_number}"] if run.sweep else []
    script = (run.sweep or run).directory / "job.sh"
    command = ["sbatch", "--parsable", "--open-mode=append", *options, *array_option, str(script)]
    result = SlurmClient(run.slurm_conf).request(command)
    if result.code != 0:
        raise _explain_failure(run, result)[0]
    job_id = parse_job_id(result.out, run.slurm_conf) + (f"_{run.task_number}" if run.sweep else "")
    for end, log in logs.items():
        with suppress(FileExistsError):  # the job has started already, and has created the same links
            (run.directory / f"{job_id}_0_log.{end}").symlink_to(log.name)
    submission = run.submission
    write_submission(
        {run: job_id}, command=command, **({"slurm_conf": submission.slurm_conf} if submission.slurm_conf else {})
    )
    return job_id


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
        HpcrunError: The file cannot be written; the job was cancelled.
    """
    conf = run.spec.site.slurm_conf
    tasks = {task: f"{job_id}_{number}" for number, task in enumerate(run.tasks)}
    slurm_conf = {} if conf or "SLURM_CONF" not in os.environ else {"slurm_conf": os.environ["SLURM_CONF"]}
    try:
        write_submission(
            {run: job_id, **tasks}, command=submission_command(run, run.directory / "job.sh"), **slurm_conf
        )
    except OSError as error:  # without a record, no command would find the job
        is_cancelled = SlurmClient(conf).request(["scancel", job_id]).code == 0
        outcome = "was cancelled" if is_cancelled else "is in the queue: cancel it"
        message = f"cannot write to {run.directory}: {error.strerror}; job {job_id} {outcome}"
        raise HpcrunError(message, hint="free disk space there, or set HPCRUN_RUN_ROOT", exit_code=1) from None


def _explain_failure(run: Run, result: CommandResult) -> tuple[HpcrunError, str]:
    """Return the error for a failed sbatch, and the reason why no job exists; empty if the job may exist."""
    conf = run.spec.site.slurm_conf
    message = result.err.strip().replace("sbatch: error: ", "")
    if _NOT_SENT_ERROR.search(message):
        hint = f"{prefix_slurm_conf(conf, 'scontrol ping')} shows whether Slurm is up; submit the job again then"
        error_message = f"Slurm cannot be reached, and no job was submitted: {message}"
        return HpcrunError(error_message, hint=hint, exit_code=1), f"Slurm could not be reached: {message}"
    if result.code is None or result.code < 0 or _NO_REPLY.search(message):
        details = message or f"signal {-(result.code or 0)} ended sbatch"
        hint = f"the job may exist in spite of this error: hpcrun status {run.directory}"
        return HpcrunError(f"Slurm did not confirm the submission: {details}", hint=hint, exit_code=1), ""
    message = "; ".join(line.strip() for line in message.splitlines() if line.strip())
    meaning = explain_refusal(message, run.spec.resources.to_resources(), SlurmClient(conf))
    if meaning:
        message += f"; {meaning.details}" if meaning.details else ""
        hint = meaning.hint
    else:
        hint = f"{prefix_slurm_conf(conf, 'sinfo -s')} lists partitions and nodes; the script is {run.directory}/job.sh"
    return HpcrunError(f"sbatch refused the job: {message}", hint=hint, exit_code=1), f"sbatch refused it: {message}"
