"""Slurm as a submitit executor that submits the rendered script itself, with no Python object behind it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # else importing submitit makes it log to stdout
from submitit.slurm import slurm

from hpcrun.errors import HpcrunError
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import squeue
from hpcrun.schedulers.environment import clean
from hpcrun.schedulers.results import RunJob, RunWatcher

if TYPE_CHECKING:
    from pathlib import Path


class SlurmScriptJob(RunJob, slurm.SlurmJob[Any]):
    """A submitted job script; all that is needed to re-attach is its run directory and its id."""

    watcher = RunWatcher(squeue)

    def cancel(self, check: bool = True) -> None:  # noqa: ARG002 - submitit's signature
        """End the job with all its ranks."""
        squeue.cancel(Run(self.directory))


class SlurmScriptExecutor(slurm.SlurmExecutor):
    """Submits the rendered script of a run directory."""

    job_class = SlurmScriptJob

    def submit_script(self) -> SlurmScriptJob:
        """Submit ``job.sh``.

        Raises:
            HpcrunError: sbatch refused the job, or is not there.
        """
        return self._submit_command("job.sh")

    def _submit_command(self, command: str) -> SlurmScriptJob:
        file = self.folder / command
        argv = self._make_submission_command(file)
        try:
            answer = subprocess.run(argv, env=clean(), capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise HpcrunError(
                "there is no sbatch here",
                hint="submit from a login node of the cluster, or use --site local",
                exit_code=1,
            ) from None
        if answer.returncode:
            complaint = answer.stderr.strip().replace("sbatch: error: ", "")
            raise HpcrunError(f"sbatch refused the job: {complaint}", hint=f"the script is {file}", exit_code=1)
        job_id = self._get_job_id_from_submission_command(answer.stdout)
        Run(self.folder).submitted(job_id, command=argv)
        return self.job_class(self.folder, job_id, list(range(self._num_tasks())))

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        logs = [f"--{stream}={self.folder}/%j_0_log.{end}" for stream, end in (("output", "out"), ("error", "err"))]
        return ["sbatch", "--parsable", *logs, str(submission_file_path)]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        text = string if isinstance(string, str) else string.decode()
        # --parsable prints id[;cluster] last; a site's banner may come before it
        job_id = text.strip().rpartition("\n")[2].split(";")[0]
        if not job_id.isdigit():
            raise HpcrunError(
                f"sbatch answered {text!r}, where a job id was due", hint="squeue --me shows whether the job is there"
            )
        return job_id

    def _num_tasks(self) -> int:
        return 1  # the script starts the ranks; submitit would wait for one result of each

    @classmethod
    def affinity(cls) -> int:
        """Return that this executor may always be tried; a missing sbatch is told when submitting."""
        return 2


Executor = SlurmScriptExecutor
