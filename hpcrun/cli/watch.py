"""``hpcrun watch``: a job live, until it ends."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import os
import sys
import time
from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.cli.arguments import Job
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run
    from hpcrun.watch.picture import Picture

SECONDS = 1.0


def watch(job: Job = "last") -> None:
    """Watch a job live, until it ends.

    Why it waits, how far it is, its curves, its ranks and its log. On a
    terminal it is one picture, redrawn until the job has ended; elsewhere,
    a line for each change. Ctrl+C ends the watching, not the job.

    \b
    Examples:
      hpcrun watch
      hpcrun watch 1234
      hpcrun watch last | tee watched.log
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.cli import follow
    from hpcrun.jobs import select
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

    run = select.one(job)
    if run.job_id is None:
        raise HpcrunError(f"{run.directory} was never submitted", hint="there is nothing to watch")
    try:
        if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
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
                print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)
            if picture.over:
                return picture
            time.sleep(SECONDS if picture.row else SECONDS / 10)
