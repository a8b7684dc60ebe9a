"""``hpcrun watch``: a job or a sweep live, until it ends."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import os
import sys
import time
from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.cli.arguments import JobOrSweep
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.watch.picture import Picture

SECONDS = 1.0


def watch(job: JobOrSweep = "last") -> None:
    """Watch a job live, until it ends.

    Why it waits, how far it is, its curves, its ranks and its log. On a
    terminal it is one picture, redrawn until the job has ended; elsewhere,
    a line for each change. Ctrl+C ends the watching, not the job.

    Of a sweep, a table of its tasks. The exit code is then that of the
    first task that failed.

    \b
    Examples:
      hpcrun watch
      hpcrun watch 1234
      hpcrun watch 1234_3-7
      hpcrun watch last | tee watched.log
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import sweeps

    runs = sweeps.together(job)
    submitted = [run for run in runs if run.job_id is not None]
    if not submitted:
        raise HpcrunError(
            f"{(runs[0].sweep or runs[0]).directory} was never submitted", hint="there is nothing to watch"
        )
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if len(runs) > 1:
        _watch_sweep(submitted, live=live)
    else:
        _watch_job(submitted[0], live=live)


def _watch_sweep(tasks: "Sequence[Run]", *, live: bool) -> None:
    from hpcrun.cli import watch_sweep
    from hpcrun.jobs.sweeps import named

    try:
        code = watch_sweep.watch(tasks, live=live)
    except KeyboardInterrupt:
        which = named(tasks)
        again = f"hpcrun watch {which} shows them again, hpcrun cancel {which} ends them"
        output.message(f"\nno longer watching; the tasks go on: {again}")
        code = 130
    raise typer.Exit(code)


def _watch_job(run: "Run", *, live: bool) -> None:
    from hpcrun.cli import follow
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

    try:
        if live:
            from hpcrun.watch.screen import show

            picture = show(run)
        else:
            picture = _tell(run)
    except KeyboardInterrupt:
        run = Run(run.directory)  # it may have submitted itself again
        again = f"hpcrun watch {run.job_id} shows it again, hpcrun cancel {run.job_id} ends it"
        output.message(f"\nno longer watching; job {run.job_id} goes on: {again}")
        raise typer.Exit(130) from None
    run, row = Run(run.directory), picture.row
    if row and row.state == "COMPLETED":
        follow.show_result(run)
    elif row:
        follow.tell_end(run, State(row.state, row.reason))


def _tell(run: "Run") -> "Picture":
    """Print what changes, until the job is over."""
    from hpcrun.watch.lines import Lines
    from hpcrun.watch.picture import Watcher

    lines = Lines()
    with Watcher(run) as watcher:
        while True:
            picture = watcher.look()
            for line in lines.new(picture):
                output.show(f"{time.strftime('%H:%M:%S')}  {line}")
            if picture.over:
                return picture
            time.sleep(SECONDS if picture.row else SECONDS / 10)
