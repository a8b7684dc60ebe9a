"""Stopping jobs gently: all at once are asked to write a checkpoint and end, and those that do not are ended."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import genuine
from hpcrun.jobs.pace import Pace
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import of, states

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.states import State

POLL_SECONDS = 0.1
AGAIN_SECONDS = 3.0
"""A script writes down at once that it was asked; one that has not by then is asked once more."""
_WAITS = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
"""States in which a job has no ranks; one whose state is unknown may have some."""


@dataclass
class Stop:
    """What became of one job that was to be stopped.

    Attributes:
        run: The job.
        how: What happened, in words; empty while its ranks are given time.
        error: Why it could not be stopped.
        kept: Its checkpoints, and when each was written, at the beginning.
        asked: When its ranks were asked to end, by `time.monotonic`.
        again: Whether they were asked twice.
    """

    run: Run
    how: str = ""
    error: HpcrunError | None = None
    kept: dict[str, float] = field(default_factory=dict)
    asked: float = 0.0
    again: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more is to be done for it."""
        return bool(self.how or self.error)

    @property
    def seconds(self) -> float:
        """How long its ranks are given, as its site says."""
        return self.run.spec.site.restart.cancel_seconds


def stop(
    runs: Sequence[Run], meanwhile: Callable[[Sequence[Stop], float], bool] = lambda _left, _s: False
) -> list[Stop]:
    """Stop jobs: those that wait at once; the ranks of the others get SIGTERM and time for a checkpoint, then SIGKILL.

    Args:
        runs: The jobs.
        meanwhile: Called again and again with those that are given time and the seconds so far; where it returns True,
            nobody is given more.

    Returns:
        What became of each.
    """
    stops = [_stop(Run(run.directory)) for run in runs]
    pace = Pace([each.run for each in stops])
    pace.due()
    told = states([each.run for each in stops])
    _cancel_waiting([each for each in stops if not each.over and _rankless(told.get(each.run))])
    for each in stops:
        if not each.over:
            _ask(each)
    begin = time.monotonic()
    hurry = False
    while left := [each for each in stops if not each.over]:
        now = time.monotonic()
        if pace.due():
            told = states([each.run for each in left])
        for each in left:
            passed = now - each.asked
            record = each.run.ended()
            state = told.get(each.run)
            if (record and not record.requeued) or (state and state.finished) or _rankless(state):
                wrote = "wrote a checkpoint and " * (_checkpoints(each.run) != each.kept)
                by_itself = record.reason if record and not record.stopped else ""
                _cancel([each], by_itself or f"its ranks {wrote}ended after {passed:.0f} s")
            elif not each.run.record() and not each.again and passed > AGAIN_SECONDS:
                each.again = True
                with suppress(HpcrunError):
                    of(each.run).ask(each.run)
            elif hurry or passed > each.seconds:
                _cancel([each], f"its ranks had not ended after {passed:.0f} s, and were killed")
        hurry = meanwhile([each for each in left if not each.over], time.monotonic() - begin) or hurry
        time.sleep(POLL_SECONDS)
    return stops


def _stop(run: Run) -> Stop:
    try:
        genuine.require(run)  # what it names is sent signals
    except HpcrunError as error:
        return Stop(run, error=error)
    return Stop(run)


def _rankless(state: State | None) -> bool:
    return state is None or state.name in _WAITS or state.lost


def _cancel_waiting(stops: Sequence[Stop]) -> None:
    """Cancel jobs that have no ranks: with one call all that have the same to tell."""
    groups: dict[tuple[str, bool], list[Stop]] = {}
    for each in stops:
        groups.setdefault((each.run.scheduler, each.run.starts() > 0), []).append(each)
    for (_, again), together in groups.items():
        _cancel(together, "it waited to go on; its checkpoint is kept, if it wrote one" if again else "it did not run")


def _ask(each: Stop) -> None:
    each.kept, each.asked = _checkpoints(each.run), time.monotonic()
    try:
        asked = of(each.run).ask(each.run)
    except HpcrunError as error:
        each.error = error
        return
    if not asked:
        _cancel([each], "at once: its ranks cannot be asked to end")


def _cancel(stops: Sequence[Stop], how: str) -> None:
    """End what is left of jobs of one scheduler; those that have ended are as they should be."""
    try:
        of(stops[0].run).cancel(*(Run(each.run.directory) for each in stops))
    except HpcrunError as error:
        if len(stops) > 1:  # one that cannot be cancelled keeps no other from it
            for each in stops:
                _cancel([each], how)
            return
        if not stops[0].run.ended():
            stops[0].error = error
            return
    for each in stops:
        each.how = how


def _checkpoints(run: Run) -> dict[str, float]:
    """Return when each checkpoint was written; one that is being written has a name with a dot before it."""
    found = {}
    for file in run.directory.glob("checkpoints/[!.]*.npz"):
        with suppress(FileNotFoundError):
            found[file.name] = file.stat().st_mtime
    return found
