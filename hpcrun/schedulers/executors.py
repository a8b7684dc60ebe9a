"""The schedulers as submitit executors that submit the rendered script, with no Python object hidden behind it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import redirect_stderr, suppress
from functools import cache
from io import StringIO
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any

os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # else importing submitit makes it log to stdout
from submitit.core import core
from submitit.core.utils import FailedJobError, UncompletedJobError
from submitit.slurm.slurm import SlurmExecutor

from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import UNFINISHED_STATES
from hpcrun.schedulers import environment, local, slurm

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.schedulers import Scheduler


class RunWatcher(core.InfoWatcher):
    """Asks a scheduler once for all jobs.

    submitit's own asks only sacct, at most every 10 minutes, and takes suspended and configuring jobs for ended.

    Args:
        scheduler: The scheduler.
        delay_s: Most seconds between two questions.
    """

    def __init__(self, scheduler: Scheduler, delay_s: int = 15) -> None:
        super().__init__(delay_s)
        self.scheduler = scheduler
        self.runs: dict[str, Run] = {}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return Slurm's name of a job's state."""
        state = str(self.get_info(job_id, mode=mode).get("State", "UNKNOWN"))
        if state in UNFINISHED_STATES and mode == "standard" and self.runs[job_id].end_record():
            return self.get_state(job_id, "force")  # what was last heard is out of date
        return state

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Return whether a job has ended for good."""
        return self.get_state(job_id, mode) not in UNFINISHED_STATES

    def update_if_long_enough(self, mode: str) -> None:
        """Ask where submitit would, and regularly no sooner than the jobs' sites want."""
        least = max((run.poll_seconds for run in self.runs.values()), default=0.0)
        early = self._num_calls and time.time() - self._last_status_check < least
        super().update_if_long_enough("cache" if early and mode == "standard" else mode)

    def update(self) -> None:
        """Ask for all jobs that have not ended."""
        self._num_calls += 1
        # a run may have submitted itself again, and have another job's id by now
        runs = {job_id: Run(self.runs[job_id].directory) for job_id in sorted(self._registered - self._finished)}
        asked = {job_id: run for job_id, run in runs.items() if run.job_id}  # else its run directory is gone
        told = self.scheduler.query_states(list(asked.values()))
        for job_id, state in ((job_id, told[run]) for job_id, run in asked.items()):
            self._info_dict[job_id] = {"JobID": job_id, "State": state.name, "NodeList": state.nodes}
            if state.finished:
                self._finished.add(job_id)
        self._last_status_check = time.time()


@cache
def _slurm_watcher(_conf: str | None) -> RunWatcher:
    return RunWatcher(slurm)


class ScriptJob(core.Job[Any]):
    """A submitted job script; all that is needed to re-attach is its run directory and its id.

    ``result()`` waits, and returns the content of ``result.json``.
    """

    watcher: RunWatcher

    @property
    def directory(self) -> Path:
        """The run directory."""
        folder: Path = self.paths.folder
        return folder

    def cancel(self, check: bool = True) -> None:  # noqa: ARG002 - submitit's signature
        """Give the ranks time for a checkpoint, then end the job with all of them.

        Raises:
            HpcrunError: The scheduler refused.
        """
        from hpcrun.schedulers.stopping import stop

        for job in stop([Run(self.directory)]):
            if job.error:
                raise job.error

    def _register_in_watcher(self) -> None:
        run = Run(self.directory)
        self._slurm_conf = run.slurm_conf
        self.watcher.runs[self.job_id] = run
        self.watcher.register_job(self.job_id)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        # submitit reads the pickle, which may be somebody else's, and then is a program of theirs
        run, end = Run(self.directory), time.monotonic() + self._results_timeout_s
        with suppress(OSError):  # a file server's client looks again at a folder that it changes
            self.directory.chmod(self.directory.stat().st_mode)
        while not (ended := run.end_record()):
            if time.monotonic() > end:
                raise UncompletedJobError(f"job {self.job_id} left no exit.json in {run.directory} ({self.state})")
            time.sleep(0.5)
        if ended.stopped:  # there is no pickle, and none is to be waited for
            return "error", ended.reason
        code = ended.exit_code  # where the disk was full, the pickle is empty, but this record had its room
        return ("error", f"exit code {code}: {ended.reason}") if code else ("success", dict(run.result() or {}))


class SlurmScriptJob(ScriptJob):
    """A job of Slurm."""

    @property
    def watcher(self) -> RunWatcher:  # type: ignore[override]
        """What asks for all jobs of the same Slurm; another one may have a job of the same id."""
        return _slurm_watcher(self._slurm_conf)


class LocalScriptJob(ScriptJob):
    """A job of this machine."""

    watcher = RunWatcher(local)


class SlurmScriptExecutor(SlurmExecutor):
    """Submits the rendered script of a run directory to Slurm, as submitit submits its own, without any pickle.

    Args:
        folder: The run directory.
    """

    job_class = SlurmScriptJob

    def __init__(self, folder: Path) -> None:
        core.PicklingExecutor.__init__(self, folder)  # SlurmExecutor's own refuses a host without srun
        self.python = sys.executable
        self.run = Run(self.folder)

    def submit_script(self) -> SlurmScriptJob:
        """Submit ``job.sh``; ``<id>_submission.sh`` is its copy.

        Raises:
            HpcrunError: Slurm refused it, is not there, or did not answer.
        """
        try:
            slurm.require_sbatch(self.run)
            with redirect_stderr(StringIO()):  # submitit prints what the error below quotes
                job: Any = self._submit_command(self._submitit_command_str)
        except FailedJobError as error:
            failure = error.__cause__
            if not isinstance(failure, CalledProcessError):
                raise
            raise slurm.submission_error(self.run, failure) from None
        finally:
            for file in self.folder.glob(".submission_file_*.sh"):  # submitit's link to the copy, or what it left
                file.unlink()
        return job  # type: ignore[no-any-return]

    def _num_tasks(self) -> int:
        return 1  # the script starts the ranks

    def _make_submission_file_text(self, command: str, uid: str) -> str:  # noqa: ARG002 - submitit's signature
        return ""  # submitit would write it in the encoding of the locale

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        shutil.copy(self.folder / "job.sh", submission_file_path)
        return ["env", *environment.env_arguments(self.run.spec.site.slurm_conf), *slurm.submission_command(self.run)]

    def _get_job_id_from_submission_command(self, string: bytes | str) -> str:
        job_id = slurm.parse_job_id(str(string), self.run.spec.site.slurm_conf)
        slurm.record_submission(self.run, job_id)
        return job_id

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        raise NotImplementedError("hpcrun submits scripts, not functions: use submit_script()")


class LocalScriptExecutor(core.Executor):
    """Starts the rendered script of a run directory on this machine.

    Args:
        folder: The run directory.
    """

    job_class = LocalScriptJob

    def submit_script(self) -> LocalScriptJob:
        """Start ``job.sh``.

        Raises:
            HpcrunError: It cannot be started.
        """
        return self.job_class(self.folder, local.submit(Run(self.folder)))

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        raise NotImplementedError("hpcrun submits scripts, not functions: use submit_script()")


EXECUTORS = {"slurm": SlurmScriptExecutor, "local": LocalScriptExecutor}
