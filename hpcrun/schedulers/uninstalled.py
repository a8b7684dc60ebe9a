"""A substitute for a scheduler whose package is no longer installed: its jobs have an unknown state."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from hpcrun.jobs.states import State
from hpcrun.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.errors import HpcrunError
    from hpcrun.jobs.runs import Run
    from hpcrun.scheduler import UnrecordedJob


class UninstalledScheduler(Scheduler):
    """A scheduler that cannot be loaded.

    Args:
        name: The name of the scheduler.
        error: The error of loading the scheduler.
    """

    def __init__(self, name: str, error: HpcrunError) -> None:
        self.name = self.title = name  # type: ignore[misc]
        self.error = error

    def _raise_load_error(self) -> NoReturn:
        raise self.error

    def submit(self, run: Run) -> str:  # noqa: ARG002, D102
        self._raise_load_error()

    def find_unrecorded(self, runs: Sequence[Run]) -> dict[Path, UnrecordedJob | None]:  # noqa: ARG002, D102
        return {}

    def query_states(self, runs: Sequence[Run]) -> dict[Run, State]:  # noqa: D102
        return {run: State("UNKNOWN", self.error.message) for run in runs}

    def request_stop(self, run: Run) -> bool:  # noqa: ARG002, D102
        self._raise_load_error()

    def cancel(self, *runs: Run) -> None:  # noqa: ARG002, D102
        self._raise_load_error()

    def rerun_command(self, run: Run) -> str:  # noqa: D102
        return f"{run.directory}/job.sh"
