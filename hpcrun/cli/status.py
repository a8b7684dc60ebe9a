"""``hpcrun status``: what became of jobs, as a table that may be redrawn."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import sys
import time
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hpcrun.cli import output
from hpcrun.cli.arguments import Jobs, Json, Since, States
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.rows import Row
    from hpcrun.jobs.runs import Run

NEW = 20
"""So many newest jobs are shown where none is named, whatever became of them."""

COLUMNS = ("job", "name", "site", "state", "nodes", "ranks", "elapsed", "progress", "exit", "reason")
WATCH = "2"
LONGEST_WATCH = 600.0


class Command(TyperCommand):
    """A command whose ``--watch`` may go without its number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the number there."""
        if "--watch" in args:
            after = args.index("--watch") + 1
            if not (after < len(args) and args[after].replace(".", "", 1).isdigit()):
                args = [*args[:after], WATCH, *args[after:]]
        return super().parse_args(ctx, args)


COMMAND_CLASS = Command


def status(
    jobs: Jobs = None,
    state: States = None,
    since: Since = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="[SECONDS]",
            help=f"Show the table again every {WATCH} (or SECONDS) seconds, until the JOBs named have ended.",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First find all your run directories anew, and forget those gone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the state of jobs.

    Without a JOB, of those that wait or run, and of your 20 newest.

    \b
    Examples:
      hpcrun status
      hpcrun status last --watch
      hpcrun status 'resnet*' 1234-1250 --state pending,running
      hpcrun status all --since 3d --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import rows, select, states

    if watch is not None and as_json:
        raise HpcrunError("--watch and --json exclude each other", hint="--json prints one value: ask again for more")
    if watch is not None and not 0.1 <= watch <= LONGEST_WATCH:
        hint = f"0.1 to {LONGEST_WATCH:g} seconds; a JOB goes before it: hpcrun status {watch:.0f} --watch"
        raise HpcrunError(f"--watch {watch:g}: no number of seconds to wait", hint=hint)
    wanted = states.named(state) if state is not None else frozenset[str]()
    earliest = select.moment(since) if since is not None else None
    if rebuild:
        from hpcrun.jobs.rebuild import rebuild as find_all
        from hpcrun.schedulers.recovery import living

        added, off = find_all(living)
        output.message(f"the list of your runs was made anew: {added} added, {off} taken off")
    words = jobs or []
    gone: list[Run] = []

    def look() -> "list[Row]":
        gone.clear()
        if words or wanted or earliest is not None:
            return rows.chosen(words, schedulers.states, states=wanted, since=earliest, gone=gone, several=True)
        return rows.newest(NEW, schedulers.states, gone=gone)

    if watch is not None:
        _watch(look, watch, ends=bool(words))
        return
    try:
        told = look()
    except select.GoneError as error:
        _tell_gone(error.runs)
        raise typer.Exit(error.exit_code) from None
    _tell_gone(gone)
    if as_json:
        single = len(words) == len(told) == 1 and select.means_one(words[0]) and not wanted and earliest is None
        values = [row.as_json() for row in told]
        output.value(values[0] if single else values)
    else:
        _show(told, narrowed=bool(wanted) or earliest is not None)


def _show(told: "list[Row]", *, narrowed: bool) -> None:
    if told:
        output.table(COLUMNS, map(cells, told))
    elif narrowed:
        output.message("no job is so")
    else:
        output.message("no runs yet: hpcrun submit lenet5 --wait makes one")


def cells(row: "Row") -> tuple[object, ...]:
    """Return a job's line of the table; its cells are those of `COLUMNS`."""
    from hpcrun.jobs.rows import ALONE
    from hpcrun.jobs.states import plain
    from hpcrun.why.signatures import in_brief

    state = plain(row.state) + (f" (as of {_when(row.as_of)})" if row.as_of else "")
    elapsed = f"{row.elapsed or '0:00'} of {row.limit}" if row.limit else row.elapsed
    well = row.state == "COMPLETED" and not row.reason.endswith(ALONE)
    reason = row.faults if well else row.reason
    if row.state in {"PENDING", "CANCELLED"} and (brief := in_brief(reason)) != reason:
        reason = brief if row.state == "PENDING" else ""  # why it waited says nothing of why it was cancelled
    again = row.starts > 1 or (row.starts and row.state in {"PENDING", "REQUEUED"})
    times = "once" if row.starts == 1 else f"{row.starts} times"
    reason = "; ".join(filter(None, [reason, f"started {times}" if again else ""]))
    nodes = row.nodes or row.nodes_asked
    name = " ".join([row.name, *map("=".join, row.values.items())])
    return (row.job_id, name, row.site, state, nodes, row.ranks, elapsed, row.progress, row.exit_code, reason)


def _when(moment: str) -> str:
    """Return a time as people say it: without the date, where that is today's."""
    when = datetime.fromisoformat(moment)
    today = when.date() == datetime.now(when.tzinfo).date()
    return f"{when:%H:%M:%S}" if today else f"{when:%Y-%m-%d %H:%M}"


def _tell_gone(gone: "Sequence[Run]") -> None:
    from hpcrun.jobs.states import plain
    from hpcrun.schedulers.recovery import living

    alive = living(gone)
    for run, state in alive.items():
        what = f"the run directory {run.directory} is gone, but its job {run.job_id} is {plain(state.name)}"
        output.message(f"{what}: hpcrun cancel {run.job_id} ends it")
    if rest := [run for run in gone if run not in alive]:
        which = f"the run directory {rest[0].directory} is" if len(rest) == 1 else f"{len(rest)} run directories are"
        output.message(f"{which} gone; hpcrun status --rebuild takes such runs off the list")


def _watch(look: "Callable[[], list[Row]]", seconds: float, *, ends: bool) -> None:
    """Show the table again and again: in its place on a terminal, one after the other elsewhere.

    Args:
        look: Returns what to show.
        seconds: How long to wait in between; longer where a site wants it.
        ends: Whether there is no more to see once all these jobs have ended.
    """
    terminal, asked_for = sys.stdout.isatty(), seconds
    while True:
        told = look()
        wanted = (_least_pause(row.run_dir) for row in told if row.active)
        seconds = max([asked_for, *wanted])
        head = f"every {seconds:g} s, {datetime.now().astimezone():%H:%M:%S}; Ctrl+C ends it"
        if terminal:
            output.screen([head, *output.text(COLUMNS, map(cells, told)).splitlines()])
        else:
            output.table(COLUMNS, map(cells, told))
            sys.stdout.flush()
        if ends and all(row.finished for row in told):
            return
        time.sleep(seconds)


@cache
def _least_pause(run_dir: str) -> float:
    """Return how many seconds a run's site wants between two questions; what was submitted does not change."""
    from hpcrun.jobs.runs import Run

    return Run(Path(run_dir)).poll_seconds
