"""This machine as a submitit executor: the rendered script runs detached, and survives the terminal."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any

os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # else importing submitit makes it log to stdout
from submitit.core import core

from hpcrun.jobs.runs import Run
from hpcrun.schedulers import processes
from hpcrun.schedulers.environment import clean
from hpcrun.schedulers.results import RunJob, RunWatcher

if TYPE_CHECKING:
    from pathlib import Path


class LocalScriptJob(RunJob, core.Job[Any]):
    """A job script that runs on this machine; all that is needed to re-attach is its run directory and its id."""

    watcher = RunWatcher(processes)

    def cancel(self, check: bool = True) -> None:  # noqa: ARG002 - submitit's signature
        """End the job with all its ranks."""
        processes.cancel(Run(self.directory))


class LocalScriptExecutor(core.Executor):
    """Starts the rendered script of a run directory.

    Args:
        folder: The run directory.
        keep_allocation: Whether the script sees the Slurm allocation that this process stands in.
    """

    job_class = LocalScriptJob

    def __init__(self, folder: Path, *, keep_allocation: bool = False) -> None:
        super().__init__(folder)
        self.keep_allocation = keep_allocation

    def submit_script(self) -> LocalScriptJob:
        """Start ``job.sh``, detached from the terminal."""
        environment = {**(os.environ if self.keep_allocation else clean()), "HPCRUN_RUN_DIR": str(self.folder)}
        out, err = self.folder / "starting.out", self.folder / "starting.err"
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(
                ["bash", str(self.folder / "job.sh")],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        threading.Thread(target=process.wait, daemon=True).start()  # else it stays a zombie for as long as we live
        # the id is the pid, known only now; an open file may be renamed
        out.rename(self.folder / f"{process.pid}_0_log.out")
        err.rename(self.folder / f"{process.pid}_0_log.err")
        Run(self.folder).submitted(str(process.pid), start_time=processes.start_time(process.pid))
        return self.job_class(self.folder, str(process.pid))

    def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[core.Job[Any]]:
        raise NotImplementedError("hpcrun submits scripts, not functions: use submit_script()")


Executor = LocalScriptExecutor
