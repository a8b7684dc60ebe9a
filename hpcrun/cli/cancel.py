"""``hpcrun cancel``: stop jobs, and report how each job ended."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import signal
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import Jobs, SinceOption, States
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.status_rows import StatusRow
    from hpcrun.schedulers.stopping import StoppedJob

FIRST_MESSAGE_SECONDS = 2.0
MESSAGE_INTERVAL_SECONDS = 10.0


def cancel(
    jobs: Jobs = None,
    state: States = None,
    since: SinceOption = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Cancel several jobs without confirmation.")] = False,
) -> None:
    """Cancel jobs with all their ranks.

    The ranks get SIGTERM, and time to write a checkpoint (30 s unless the
    site sets another time). Ctrl+C kills them immediately.

    \b
    Examples:
      hpcrun cancel 1234
      hpcrun cancel 1234-1250 last
      hpcrun cancel 'resnet*' --state pending
      hpcrun cancel all --since 2h --yes
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import run_selection, states, status_rows
    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.recovery import find_jobs_without_directory

    words = jobs or []
    if not words and state is None and since is None:
        raise HpcrunError("no job was named", hint=run_selection.SELECTION_HINT)
    names = states.parse_states(state) if state is not None else frozenset[str]()
    earliest_submission = run_selection.parse_time(since) if since is not None else None
    removed_runs: list[Run] = []
    error: run_selection.MissingRunError | None = None
    matching_rows: Sequence[StatusRow] = []
    try:
        matching_rows = status_rows.select_rows(
            words,
            schedulers.query_states,
            states=names,
            since=earliest_submission,
            missing_runs=removed_runs,
            purpose="modify",
        )
    except run_selection.MissingRunError as raised:
        removed_runs, error = list(raised.runs), raised
    are_runs_named = bool(words) and all(map(run_selection.selects_one_run, words))
    # a job in state UNKNOWN is cancelled only if the user named it; a pattern selects pending and running jobs
    selected_rows = [row for row in matching_rows if (not row.finished if are_runs_named else row.active)]
    jobs_without_directory = {
        run: current_state
        for run, current_state in find_jobs_without_directory(removed_runs).items()
        if not names or current_state.name in names
    }
    if not (selected_rows or jobs_without_directory):
        raise error or _nothing_to_cancel_error(matching_rows)
    if (
        len(selected_rows) + len(jobs_without_directory) > 1
        and not yes
        and (not words or any(map(run_selection.is_wildcard, words)))
    ):
        _confirm(
            [
                *((row.job_id, row.name, row.state, row.elapsed) for row in selected_rows),
                *(
                    (run.job_id, run.name, current_state.name, current_state.elapsed)
                    for run, current_state in jobs_without_directory.items()
                ),
            ]
        )
    if are_runs_named:
        _report_ended(matching_rows, {_submission_folder(row) for row in selected_rows})
    for run in jobs_without_directory:
        run.scheduler.cancel(run)
        output.message(f"job {run.job_id} is being cancelled; its run directory {run.directory} is gone")
    if selected_rows:
        cancel_runs([Run(Path(row.run_dir)) for row in selected_rows])


def _submission_folder(row: "StatusRow") -> Path:
    """Return the run directory; that of the sweep for a task of a sweep."""
    from hpcrun.jobs.runs import Run

    run = Run(Path(row.run_dir))
    return (run.sweep or run).directory


def _report_ended(rows: "Sequence[StatusRow]", cancelled_folders: Collection[Path]) -> None:
    """Print which jobs have ended already, without the ended tasks of sweeps that are cancelled."""
    ended_rows: dict[Path, list[StatusRow]] = {}
    for row in rows:
        if row.finished and (folder := _submission_folder(row)) not in cancelled_folders:
            ended_rows.setdefault(folder, []).append(row)
    for group in ended_rows.values():
        row = group[0]
        output.message(
            f"job {row.job_id or row.run_dir} ({row.name}) has ended already: {row.state}"
            if len(group) == 1
            else f"{len(group)} tasks of {row.name} have ended already"
        )


def _nothing_to_cancel_error(rows: "Sequence[StatusRow]") -> HpcrunError:
    if len(rows) != 1:
        message = f"none of these {len(rows)} jobs is pending or running" if rows else "no job matches"
        return HpcrunError(message, hint="hpcrun status lists them", exit_code=1)
    row = rows[0]
    if row.job_id is None and row.faults:
        return HpcrunError(f"{row.run_dir}: {row.faults}", hint="its job id is unknown: squeue --me lists your jobs")
    if row.job_id is None:
        return HpcrunError(f"{row.run_dir} was never submitted", hint="there is nothing to cancel")
    hint = f"hpcrun logs {row.job_id}"
    return HpcrunError(f"job {row.job_id} has ended already: {row.state}", hint=hint, exit_code=1)


def _confirm(jobs: "Sequence[tuple[str | None, str, str, str]]") -> None:
    """List jobs by id, name, state and run time, and ask once for confirmation.

    Raises:
        HpcrunError: There is no terminal on which to ask.
        Exit: The user declined.
    """
    from hpcrun.jobs.states import describe_state

    for job_id, name, state, elapsed in jobs:
        output.message(f"  {job_id}  {name}  {describe_state(state)}  {elapsed}".rstrip())
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        message = f"cancelling {len(jobs)} jobs needs confirmation, and there is no terminal to ask on"
        raise HpcrunError(message, hint="--yes cancels them all")
    if not typer.confirm(f"Cancel these {len(jobs)} jobs?", err=True):
        output.message("no job was cancelled")
        raise typer.Exit(1)


class CancelProgress:
    """A callback that prints how long a cancellation has waited for checkpoints, first after `FIRST_MESSAGE_SECONDS`.

    Args:
        kill_requested: Function that returns whether to kill the ranks without waiting for checkpoints.
    """

    def __init__(self, kill_requested: Callable[[], bool]) -> None:
        self.kill_requested = kill_requested
        self.next_message = FIRST_MESSAGE_SECONDS

    def __call__(self, remaining_jobs: "Sequence[StoppedJob]", seconds: float) -> bool:
        """Print the waiting time if a message is due, and return whether to kill the ranks now."""
        if remaining_jobs and seconds >= self.next_message:
            self.next_message = seconds + MESSAGE_INTERVAL_SECONDS
            subject = (
                f"job {remaining_jobs[0].run.job_id}" if len(remaining_jobs) == 1 else f"{len(remaining_jobs)} jobs"
            )
            grace_seconds = max(stopped_job.grace_seconds for stopped_job in remaining_jobs)
            output.message(
                f"{subject}: waiting {seconds:.0f} of at most {grace_seconds:.0f} s for a checkpoint; "
                "Ctrl+C kills the ranks now"
            )
        return self.kill_requested()


def cancel_runs(runs: "Sequence[Run]") -> None:
    """Cancel jobs and print how each job ended; Ctrl+C kills jobs that still run.

    Raises:
        HpcrunError: Only one job was selected, and it could not be cancelled.
        Exit: One or more of several jobs could not be cancelled.
    """
    from hpcrun.schedulers.stopping import stop

    interrupts: list[int] = []
    previous_handler = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        stopped_jobs = stop(runs, CancelProgress(lambda: bool(interrupts)))
    finally:
        signal.signal(signal.SIGINT, previous_handler)
    for stopped_job in stopped_jobs:
        if stopped_job.error and len(stopped_jobs) == 1:
            raise stopped_job.error
        output.message(f"ERROR: {stopped_job.error}" if stopped_job.error else format_stopped_job(stopped_job))
    if any(stopped_job.error for stopped_job in stopped_jobs):
        raise typer.Exit(1)


def format_stopped_job(stopped_job: "StoppedJob") -> str:
    """Return one line on how a cancelled job ended."""
    return f"job {stopped_job.run.job_id} ({stopped_job.run.name}) is cancelled: {stopped_job.outcome}"
