"""A short job that looks at a cluster: submitted, told of, cancelled where it waits too long, removed."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import typer

from hpcrun import pipeline, schedulers
from hpcrun.cli import output
from hpcrun.cli.follow import Interrupts
from hpcrun.errors import HpcrunError
from hpcrun.jobs.logs import until_ended
from hpcrun.jobs.runs import Run
from hpcrun.why.answer import WAITING, explain
from hpcrun.why.signatures import in_brief

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.jobs.states import State
    from hpcrun.pipeline import Plan
    from hpcrun.why.answer import Answer

DONE_SECONDS = 5.0
"""So long the script of a job that ended well may take for its last lines."""


def patience(timeout: str) -> float:
    """Return the seconds of ``--timeout``.

    Raises:
        HpcrunError: It is no time.
    """
    from hpcrun.resources import seconds

    try:
        return seconds(timeout)
    except ValueError as error:
        raise HpcrunError(f"--timeout={timeout}: {error}", hint="--timeout 30 waits half an hour") from None


def run(
    plan: Plan, seconds: float, what: str, meanwhile: Callable[[Run], None] = lambda _run: None
) -> tuple[Run, Answer | None]:
    """Submit a job, and tell how far it is until it ends; SIGINT and SIGTERM cancel it.

    Args:
        plan: What is submitted.
        seconds: So many it may wait in the queue: then it is cancelled.
        what: What it does, for people.
        meanwhile: Called with it again and again, and once more after its end.

    Returns:
        The job, which has ended, and why it still waited where it was cancelled for that.

    Raises:
        HpcrunError: It could not be submitted, or not be cancelled.
        Exit: A signal ended it; of a job that had not started, nothing is left.
    """
    interrupts = Interrupts((signal.SIGINT, signal.SIGTERM))
    made = pipeline.create(plan)
    job_id = schedulers.of(made).submit(made)
    output.message(f"job {job_id} {what}")
    waited = _follow(made, seconds, interrupts, meanwhile)
    if waited or interrupts.received:
        _stop(made)
    ended = Run(made.directory)
    if interrupts.received:
        leave(ended, kept=bool(ended.starts()))
        raise typer.Exit(128 + interrupts.received)
    return ended, waited


def _follow(run: Run, seconds: float, interrupts: Interrupts, meanwhile: Callable[[Run], None]) -> Answer | None:
    begin, seen, late = time.monotonic(), "", False

    def see(state: State) -> None:
        nonlocal seen, late
        waits = state.name in WAITING
        late = waits and time.monotonic() - begin > seconds
        now = ": ".join(filter(None, [state.name.lower(), in_brief(state.reason) if waits else ""]))
        if now != seen and (waits or state.name == "RUNNING"):
            output.message(f"job {run.job_id} is {now}" + (f" on {state.nodes}" if state.nodes else ""))
        seen = now

    for _ in until_ended(run, schedulers.state, see):
        meanwhile(run)
        if interrupts.received:
            return None
        if late:
            return explain(Run(run.directory))
    return None


def _stop(run: Run) -> None:
    from hpcrun.cli.stopping import told
    from hpcrun.schedulers.stopping import stop

    for each in stop([run]):
        if each.error:
            raise each.error
        output.message(told(each))


def leave(run: Run, *, kept: bool) -> None:
    """Tell where a run directory is that is kept; remove another, and take it off the list, once its script is done.

    Args:
        run: The job.
        kept: Whether its run directory stays.
    """
    from hpcrun.jobs import prune

    if kept:
        output.message(f"run directory: {run.directory}")
        return
    end, last = time.monotonic() + DONE_SECONDS, run.directory / f"{run.job_id}_0_result.pkl"
    while run.starts() and not last.exists() and time.monotonic() < end:
        time.sleep(0.1)
    try:
        prune.remove(run, keep_results=False)
    except OSError as error:
        output.message(f"{run.directory} cannot be removed: {error.strerror}")
        return
    prune.forget([run.directory])
