"""The submitit executors of the schedulers, which submit a rendered script, not a pickled function."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

# without this variable, submitit logs to stdout when it is imported
os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
from submitit.core import core
from submitit.core.utils import UncompletedJobError
from submitit.slurm.slurm import SlurmExecutor

from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import UNFINISHED_STATES, State
from hpcrun.schedulers import slurm_submission

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpcrun.scheduler import Scheduler


class RunWatcher(core.InfoWatcher):
    """A submitit watcher that queries the states of all jobs of a scheduler at once.

    submitit's watcher queries only sacct, at most every 10 minutes, and treats suspended jobs as ended.

    Args:
        scheduler: The scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.runs: dict[str, Run] = {}
        self.backoff = PollBackoff(self.runs.values())

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return Slurm's name of a job's state; a job that was never queried does not wait for the poll interval."""
        if mode == "standard" and job_id not in self._info_dict:
            mode = "force"
        state = str(self.get_info(job_id, mode=mode).get("State", "UNKNOWN"))
        if state in UNFINISHED_STATES and mode == "standard" and self.runs[job_id].end_record():
            return self.get_state(job_id, "force")  # the job has ended since the last query
        return state

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Return whether a job has ended and will not be requeued."""
        return self.get_state(job_id, mode) not in UNFINISHED_STATES

    def update_if_long_enough(self, mode: str) -> None:
        """Query the scheduler if the poll interval has passed, or if ``mode`` is ``force``."""
        if mode == "force" or (mode == "standard" and self.backoff.is_due()):
            self.update()

    def register_job(self, job_id: str) -> None:
        """Add a job to the watched jobs; an earlier job with the same id may have ended."""
        super().register_job(job_id)
        self._finished.discard(job_id)
        self._info_dict.pop(job_id, None)
        self.backoff.reset()

    def clear(self) -> None:
        """Forget all states."""
        super().clear()
        self.backoff = PollBackoff(self.runs.values())

    def update(self) -> None:
        """Query the states of all watched jobs that have not ended."""
        self._num_calls += 1
        self.backoff.start_interval()
        # A run that submitted itself again has a new job id.
        runs = {job_id: Run(self.runs[job_id].directory) for job_id in sorted(self._registered - self._finished)}
        submitted_runs = {
            job_id: run for job_id, run in runs.items() if run.job_id
        }  # leave out runs whose directory was removed
        states = self.scheduler.query_states(list(submitted_runs.values()))
        for job_id, state in ((job_id, states[run]) for job_id, run in submitted_runs.items()):
            if state.name != self._info_dict.get(job_id, {}).get("State"):
                self.backoff.reset()
            self._info_dict[job_id] = {
                "JobID": job_id,
                "State": state.name,
                "NodeList": state.nodes,
                "Reason": state.reason,
            }
            if state.finished:
                self._finished.add(job_id)


@cache
def _get_watcher(scheduler: Scheduler, _conf: str | None) -> RunWatcher:
    """Return the watcher of a Slurm cluster or other scheduler; two clusters may have jobs with the same id."""
    return RunWatcher(scheduler)


class ScriptJob(core.Job[Any]):
    """A submitted job script; any process can attach to the job by its run directory and job id.

    ``result()`` waits for the job, and returns the contents of ``result.json``.
    """

    on_wait: Callable[[State], None] | None = None
    """Callback that `wait` calls every second with the job's state."""

    @property
    def watcher(self) -> RunWatcher:
        """The watcher of all jobs of the same scheduler."""
        return _get_watcher(*self._queue)

    @property
    def directory(self) -> Path:
        """The run directory."""
        folder: Path = self.paths.folder
        return folder

    def wait(self) -> None:
        """Wait until the job has ended."""
        while not self.done():
            if self.on_wait:
                info = self.watcher.get_info(self.job_id, mode="cache")
                self.on_wait(State(str(info.get("State", "UNKNOWN")), str(info.get("Reason", ""))))
            time.sleep(1)

    def cancel(self, check: bool = True) -> None:  # noqa: ARG002 - submitit's signature
        """Stop the job gracefully: its ranks may write a checkpoint first.

        Raises:
            HpcrunError: The scheduler refused to cancel the job.
        """
        from hpcrun.schedulers.stopping import stop

        for job in stop([Run(self.directory)]):
            if job.error:
                raise job.error

    def _register_in_watcher(self) -> None:
        run = Run(self.directory)
        self._queue = (run.scheduler, run.slurm_conf)
        self.watcher.runs[self.job_id] = run
        self.watcher.register_job(self.job_id)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        # Unpickling a file, as submitit does, runs any code that the file contains.
        run, deadline = Run(self.directory), time.monotonic() + self._results_timeout_s
        with suppress(OSError):  # chmod makes an NFS client read the folder again
            self.directory.chmod(self.directory.stat().st_mode)
        while not (record := run.end_record()):
            if time.monotonic() > deadline:
                raise UncompletedJobError(f"job {self.job_id} left no exit.json in {run.directory} ({self.state})")
            time.sleep(0.5)
        if record.stopped:  # a stopped job writes no pickle
            return "error", record.reason
        # exit.json is complete even on a full disk, because it was created with its full size
        exit_code = record.exit_code
        return (
            ("error", f"exit code {exit_code}: {record.reason}")
            if exit_code
            else ("success", dict(run.result_values()))
        )


class ScriptExecutor(core.Executor):
    """Submits the rendered script of a run by `hpcrun.scheduler.Scheduler.submit`.

    Args:
        run: The run; one with a job id is resumed.
    """

    job_class = ScriptJob

    def __init__(self, run: Run) -> None:
        super().__init__(run.directory)
        self.run = run

    def submit_script(self) -> ScriptJob:
        """Submit ``job.sh``.

        Raises:
            HpcrunError: The scheduler refused the job, is not installed, or did not answer.
        """
        scheduler = self.run.scheduler
        job_id = scheduler.resume(self.run) if self.run.job_id else scheduler.submit(self.run)
        return self.job_class(self.folder, job_id)

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        raise NotImplementedError("hpcrun submits scripts, not functions: use submit_script()")


class SlurmScriptExecutor(SlurmExecutor):
    """Submits the rendered script of a run to Slurm through submitit, without a pickle.

    submitit's ``_submit_command`` writes the script to a temporary file, runs the submission command, gets the job id
    from its output, and renames the file to ``<id>_submission.sh``.

    Args:
        run: The run; one with a job id is resumed.
    """

    job_class = ScriptJob

    def __init__(self, run: Run) -> None:
        super().__init__(run.directory)
        self.run = run

    @classmethod
    def affinity(cls) -> int:
        """Return submitit's rank of this executor, which is below 1 without srun; hpcrun needs only sbatch."""
        return 2

    def submit_script(self) -> ScriptJob:
        """Submit ``job.sh``.

        Raises:
            HpcrunError: Slurm refused the job, is not installed, or did not answer.
        """
        old_job_id = self.run.job_id
        try:
            job: ScriptJob = self._submit_command(self._submitit_command_str)
        except OSError:
            if self.run.job_id == old_job_id:
                raise
            job = self.job_class(self.folder, str(self.run.job_id))  # only its <id>_submission.sh is missing
        finally:
            for file in self.folder.glob(".submission_file_*.sh"):  # submitit's link to <id>_submission.sh
                file.unlink(missing_ok=True)
        return job

    def _make_submission_file_text(self, command: str, uid: str) -> str:  # noqa: ARG002 - submitit's signature
        # submitit would write the script in the encoding of the locale
        shutil.copy(self.folder / "job.sh", self.folder / f".submission_file_{uid}.sh")
        return ""

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:  # noqa: ARG002 - submitit's signature
        # submitit runs commands without a timeout, passes them SBATCH_* variables, and prints their errors
        output = slurm_submission.run_sbatch(self.run)[-1000:]
        # a banner may contain characters that an argument cannot contain, or that submitit cannot decode
        text = output.encode("ascii", "replace").replace(b"\0", b"?").decode()
        return ["/bin/sh", "-c", 'printf %s "$1"', "-", text]  # a builtin: PATH may have no printf

    def _get_job_id_from_submission_command(self, string: bytes | str) -> str:
        job_id = slurm_submission.parse_job_id(self.run, str(string))
        slurm_submission.record_submission(self.run, job_id)
        return job_id

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        raise NotImplementedError("hpcrun submits scripts, not functions: use submit_script()")
