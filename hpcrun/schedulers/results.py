"""What submitit's job and watcher classes share here, whatever the scheduler: states and results of run directories."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from submitit.core import core

from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import UNFINISHED

if TYPE_CHECKING:
    from pathlib import Path

    from submitit.core.utils import JobPaths

    from hpcrun.schedulers import Queue


class RunWatcher(core.InfoWatcher):
    """Asks a scheduler's queue once for all jobs.

    submitit's own asks only sacct, at most every 10 minutes, and takes suspended and configuring jobs for ended.

    Args:
        queue: The scheduler's queue.
        delay_s: Most seconds between two questions.
    """

    def __init__(self, queue: Queue, delay_s: int = 15) -> None:
        super().__init__(delay_s)
        self.queue = queue
        self.runs: dict[str, Run] = {}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Return Slurm's name of a job's state."""
        state = str(self.get_info(job_id, mode=mode).get("State", "UNKNOWN"))
        if state in UNFINISHED and mode == "standard" and self.runs[job_id].ended():
            return self.get_state(job_id, "force")  # what was last heard is out of date
        return state

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Return whether a job has ended for good."""
        return self.get_state(job_id, mode) not in UNFINISHED

    def update(self) -> None:
        """Ask for all jobs that have not ended."""
        self._num_calls += 1
        asked = [self.runs[job_id] for job_id in sorted(self._registered - self._finished)]
        for job_id, state in self.queue.states(asked).items():
            self._info_dict[job_id] = {"JobID": job_id, "State": state.name, "NodeList": state.nodes}
            if state.finished:
                self._finished.add(job_id)
        self._last_status_check = time.time()


class RunJob:
    """Mixin for submitit jobs whose result is ``result.json`` rather than a function's return value."""

    paths: JobPaths
    job_id: str
    watcher: RunWatcher

    @property
    def directory(self) -> Path:
        """The run directory."""
        folder: Path = self.paths.folder
        return folder

    def _register_in_watcher(self) -> None:
        self.watcher.runs[self.job_id] = Run(self.directory)
        self.watcher.register_job(self.job_id)

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        outcome, value = super()._get_outcome_and_result()  # type: ignore[misc]
        return (outcome, Run(self.directory).result() or {}) if outcome == "success" else (outcome, value)
