"""``hpcrun watch``: watch a job or a sweep live, until it ends."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import os
import sys
import time
from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import JobOrSweep
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.watch.watcher import WatchState

REFRESH_SECONDS = 1.0


def watch(job: JobOrSweep = "last") -> None:
    """Watch a job live, until it ends.

    Shows why the job is pending, its progress, training curves, ranks and log. A terminal
    shows one screen, redrawn until the job has ended; a pipe or a file gets
    a line for each change. Ctrl+C ends this command, but not the job.

    A sweep is shown as a table of its tasks, and the exit code is that of
    the first failed task.

    \b
    Examples:
      hpcrun watch
      hpcrun watch 1234
      hpcrun watch 1234_3-7
      hpcrun watch last | tee watched.log
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import sweep_tasks

    runs = sweep_tasks.select_tasks(job)
    submitted_runs = [run for run in runs if run.job_id is not None]
    if not submitted_runs:
        raise HpcrunError(
            f"{(runs[0].sweep or runs[0]).directory} was never submitted", hint="there is nothing to watch"
        )
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if len(runs) > 1:
        _watch_sweep(submitted_runs, is_terminal=is_terminal)
    else:
        _watch_job(submitted_runs[0], is_terminal=is_terminal)


def _watch_sweep(tasks: "Sequence[Run]", *, is_terminal: bool) -> None:
    from hpcrun.cli import watch_sweep
    from hpcrun.jobs.sweep_tasks import format_task_ids

    try:
        exit_code = watch_sweep.watch(tasks, is_terminal=is_terminal)
    except KeyboardInterrupt:
        selector = format_task_ids(tasks)
        commands = f"hpcrun watch {selector} watches them again, hpcrun cancel {selector} cancels them"
        output.message(f"\nno longer watching; the tasks go on: {commands}")
        exit_code = 130
    raise typer.Exit(exit_code)


def _watch_job(run: "Run", *, is_terminal: bool) -> None:
    from hpcrun.cli import follow
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

    try:
        if is_terminal:
            from hpcrun.watch.screen import show_live

            watch_state = show_live(run)
        else:
            watch_state = _print_changes(run)
    except KeyboardInterrupt:
        run = Run(run.directory)  # after a restart, the run may have another job id
        commands = f"hpcrun watch {run.job_id} watches it again, hpcrun cancel {run.job_id} cancels it"
        output.message(f"\nno longer watching; job {run.job_id} goes on: {commands}")
        raise typer.Exit(130) from None
    run, row = Run(run.directory), watch_state.row
    if row and row.state == "COMPLETED":
        follow.show_result(run)
    elif row:
        follow.show_failure(run, State(row.state, row.reason))


def _print_changes(run: "Run") -> "WatchState":
    """Print a line for each change until the job has ended; return the final state."""
    from hpcrun.watch.changes import ChangeReporter
    from hpcrun.watch.watcher import Watcher

    reporter = ChangeReporter()
    with Watcher(run) as watcher:
        while True:
            watch_state = watcher.update()
            for line in reporter.describe_changes(watch_state):
                output.show(f"{time.strftime('%H:%M:%S')}  {line}")
            if watch_state.finished:
                return watch_state
            time.sleep(REFRESH_SECONDS if watch_state.row else REFRESH_SECONDS / 10)
