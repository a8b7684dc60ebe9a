"""Stopping jobs while somebody watches: what is waited for, and what became of each."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.schedulers.stopping import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.stopping import Stop

FIRST_WORD = 2.0
NEXT_WORD = 10.0


class Progress:
    """Tells whoever waits longer than `FIRST_WORD` seconds what for.

    Args:
        hurry: Returns whether there shall be no more time.
    """

    def __init__(self, hurry: Callable[[], bool]) -> None:
        self.hurry = hurry
        self.next = FIRST_WORD

    def __call__(self, left: Sequence[Stop], seconds: float) -> bool:
        """Say what is waited for; return whether to go on without waiting."""
        if left and seconds >= self.next:
            self.next = seconds + NEXT_WORD
            what = f"job {left[0].run.job_id}" if len(left) == 1 else f"{len(left)} jobs"
            most = max(each.seconds for each in left)
            output.message(
                f"{what}: {seconds:.0f} s for a checkpoint so far, at most {most:.0f} s; Ctrl+C kills the ranks now"
            )
        return self.hurry()


def stop_all(runs: Sequence[Run]) -> None:
    """Stop jobs, and tell what became of each; Ctrl+C kills what still runs.

    Raises:
        HpcrunError: The only job could not be stopped.
        Exit: One of several could not.
    """
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        stops = stop(runs, Progress(lambda: bool(pressed)))
    finally:
        signal.signal(signal.SIGINT, before)
    for each in stops:
        if each.error and len(stops) == 1:
            raise each.error
        output.message(f"ERROR: {each.error}" if each.error else told(each))
    if any(each.error for each in stops):
        raise typer.Exit(1)


def told(each: Stop) -> str:
    """Return what became of a job, in one line."""
    return f"job {each.run.job_id} ({each.run.name}) is cancelled: {each.how}"
