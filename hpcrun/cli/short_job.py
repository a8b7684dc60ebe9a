"""The short job of ``site test`` and ``doctor --in-job``: submit, follow, cancel after a timeout, remove."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import typer

from hpcrun import schedulers, submission
from hpcrun.cli import output
from hpcrun.cli.follow import Interrupts
from hpcrun.errors import HpcrunError
from hpcrun.jobs.logs import poll_until_ended
from hpcrun.jobs.runs import Run
from hpcrun.why.explanation import WAITING_STATES, explain
from hpcrun.why.signatures import describe_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.jobs.states import State
    from hpcrun.submission import Plan
    from hpcrun.why.explanation import Explanation

LAST_RECORD_SECONDS = 5.0
"""Maximum time in s that the script of a completed job takes to write its last record."""


def parse_timeout(timeout: str) -> float:
    """Return the value of ``--timeout`` in seconds.

    Raises:
        HpcrunError: The value is not a valid time limit.
    """
    from hpcrun.resources import parse_time

    try:
        return parse_time(timeout)
    except ValueError as error:
        raise HpcrunError(f"--timeout={timeout}: {error}", hint="--timeout 30 waits half an hour") from None


def run(
    plan: Plan, timeout: float, purpose: str, on_poll: Callable[[Run], None] = lambda _run: None
) -> tuple[Run, Explanation | None]:
    """Submit a job and print its state until it ends; SIGINT and SIGTERM cancel it.

    Args:
        plan: The job to submit.
        timeout: Maximum time of the job in the queue, in s, after which it is cancelled.
        purpose: The purpose of the job, as a text that continues "job 12", such as "tests site dee".
        on_poll: Function that is called with the job at each poll, and once more after its end.

    Returns:
        The ended job, and the reason why it was still pending if the timeout cancelled it.

    Raises:
        HpcrunError: The job could not be submitted or cancelled.
        Exit: A signal cancelled the job; the run directory of a job that never started is removed.
    """
    interrupts = Interrupts((signal.SIGINT, signal.SIGTERM))
    created_run = submission.create(plan)
    job_id = schedulers.submit(created_run).job_id
    output.message(f"job {job_id} {purpose}")
    pending_reason = _follow(created_run, timeout, interrupts, on_poll)
    if pending_reason or interrupts.received:
        _cancel(created_run)
    ended_run = Run(created_run.directory)
    if interrupts.received:
        remove_run(ended_run, keep_directory=bool(ended_run.start_count()))
        raise typer.Exit(128 + interrupts.received)
    return ended_run, pending_reason


def _follow(run: Run, timeout: float, interrupts: Interrupts, on_poll: Callable[[Run], None]) -> Explanation | None:
    """Print the states of a job until it ends; return why it is still pending after the timeout."""
    start_time, printed_status, timed_out = time.monotonic(), "", False

    def print_state(state: State) -> None:
        nonlocal printed_status, timed_out
        is_pending = state.name in WAITING_STATES
        timed_out = is_pending and time.monotonic() - start_time > timeout
        status_text = ": ".join(filter(None, [state.name.lower(), describe_reason(state.reason) if is_pending else ""]))
        if status_text != printed_status and (is_pending or state.name == "RUNNING"):
            output.message(f"job {run.job_id} is {status_text}" + (f" on {state.nodes}" if state.nodes else ""))
        printed_status = status_text

    for _ in poll_until_ended(run, schedulers.query_state, print_state):
        on_poll(run)
        if interrupts.received:
            return None
        if timed_out:
            return explain(Run(run.directory))
    return None


def _cancel(run: Run) -> None:
    from hpcrun.cli.cancel import format_stopped_job
    from hpcrun.schedulers.stopping import stop

    for stopped_job in stop([run]):
        if stopped_job.error:
            raise stopped_job.error
        output.message(format_stopped_job(stopped_job))


def remove_run(run: Run, *, keep_directory: bool) -> None:
    """Remove the run directory of a job once its script has exited, or print the path of the directory.

    Args:
        run: The job.
        keep_directory: Whether to keep the run directory and print its path.
    """
    from hpcrun.jobs import prune

    if keep_directory:
        output.message(f"run directory: {run.directory}")
        return
    deadline, last_record = time.monotonic() + LAST_RECORD_SECONDS, run.directory / f"{run.job_id}_0_result.pkl"
    while run.start_count() and not last_record.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        prune.remove_run(run, keep_results=False)
    except OSError as error:
        output.message(f"{run.directory} cannot be removed: {error.strerror}")
        return
    prune.remove_from_index([run.directory])
