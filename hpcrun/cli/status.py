"""``hpcrun status``: show the states of jobs as a table, once or repeatedly."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import sys
import time
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.help_page import Command
from hpcrun.cli.parameters import Jobs, Json, SinceOption, States
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.status_rows import StatusRow

NEWEST_COUNT = 20
"""Number of newest jobs that are shown, in any state, if no JOB is given."""

COLUMNS = ("job", "name", "site", "state", "nodes", "ranks", "elapsed", "progress", "exit", "reason")
OPTIONAL_COLUMNS = ("ranks", "site", "exit", "nodes")
"""Columns that a narrow terminal does not show, the least important first."""
WATCH_SECONDS = "2"
"""Default interval of ``--watch``, in s."""

MAX_WATCH_SECONDS = 600.0


class StatusCommand(Command):
    """A command whose option ``--watch`` has an optional value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default interval after ``--watch`` without a value."""
        if "--watch" in args:
            interval_index = args.index("--watch") + 1
            if not (interval_index < len(args) and args[interval_index].replace(".", "", 1).isdigit()):
                args = [*args[:interval_index], WATCH_SECONDS, *args[interval_index:]]
        return super().parse_args(ctx, args)


COMMAND_CLASS = StatusCommand


def status(
    jobs: Jobs = None,
    state: States = None,
    since: SinceOption = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            metavar="[SECONDS]",
            help=f"Show the table again every {WATCH_SECONDS} (or SECONDS) seconds until all named jobs have ended.",
        ),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="First update the index: add your run directories, and drop removed ones."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the states of jobs.

    Without a JOB, show your pending and running jobs, and your 20 newest jobs.

    \b
    Examples:
      hpcrun status
      hpcrun status last --watch
      hpcrun status 'resnet*' 1234-1250 --state pending,running
      hpcrun status all --since 3d --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import run_selection, states, status_rows

    if watch is not None and as_json:
        raise HpcrunError(
            "--watch and --json exclude each other", hint="--json prints one value: repeat the command instead"
        )
    if watch is not None and not 0.1 <= watch <= MAX_WATCH_SECONDS:
        hint = f"0.1 to {MAX_WATCH_SECONDS:g} seconds; a JOB goes before it: hpcrun status {watch:.0f} --watch"
        raise HpcrunError(f"--watch {watch:g}: not a valid number of seconds", hint=hint)
    wanted_states = states.parse_states(state) if state is not None else frozenset[str]()
    earliest_submission = run_selection.parse_time(since) if since is not None else None
    if rebuild:
        from hpcrun.jobs.rebuild import rebuild_index
        from hpcrun.schedulers.recovery import find_jobs_without_directory

        added_count, removed_count = rebuild_index(find_jobs_without_directory)
        output.message(f"rebuilt the index of your runs: {added_count} added, {removed_count} removed")
    words = jobs or []
    missing_runs: list[Run] = []

    def query() -> "list[StatusRow]":
        missing_runs.clear()
        if words or wanted_states or earliest_submission is not None:
            return status_rows.select_rows(
                words,
                schedulers.query_states,
                states=wanted_states,
                since=earliest_submission,
                missing_runs=missing_runs,
                purpose="list",
            )
        return status_rows.newest_rows(NEWEST_COUNT, schedulers.query_states, missing_runs=missing_runs)

    if watch is not None:
        _watch(query, watch, until_ended=bool(words))
        return
    try:
        table = query()
    except run_selection.MissingRunError as error:
        _report_removed(error.runs)
        raise typer.Exit(error.exit_code) from None
    _report_removed(missing_runs)
    if as_json:
        is_single = (
            len(words) == len(table) == 1
            and run_selection.selects_one_run(words[0])
            and not wanted_states
            and earliest_submission is None
        )
        values = [row.as_json() for row in table]
        output.value(values[0] if is_single else values)
    else:
        _show(table, wanted_states, since=since)


def _show(table: "list[StatusRow]", wanted_states: frozenset[str], *, since: str | None) -> None:
    if table:
        output.table(COLUMNS, map(cells, table), optional_columns=OPTIONAL_COLUMNS)
    elif wanted_states:
        from hpcrun.jobs.states import describe_state

        verb = "have" if wanted_states <= {"COMPLETED", "FAILED"} else "are"
        output.message(f"no jobs {verb} {' or '.join(sorted(map(describe_state, wanted_states)))}")
    elif since is not None:
        output.message(f"no jobs were submitted since {since}" if "-" in since else f"no jobs in the last {since}")
    else:
        output.message("there are no runs yet: hpcrun submit lenet5 --wait creates one")


def cells(row: "StatusRow") -> tuple[object, ...]:
    """Return the cells of a job's row in the table, one for each of `COLUMNS`."""
    from hpcrun.jobs import world_warning
    from hpcrun.why.signatures import describe_reason

    state = row.plain_state + (f" (as of {_format_time(row.as_of)})" if row.as_of else "")
    elapsed = f"{row.elapsed or '0:00'} of {row.limit}" if row.limit else row.elapsed
    has_succeeded = row.state == "COMPLETED" and not world_warning.is_warning(row.reason)
    reason = row.faults if has_succeeded else row.reason
    if row.state in {"PENDING", "CANCELLED"} and (brief := describe_reason(reason)) != reason:
        # the reason for which the job was pending is not the reason for which it was cancelled
        reason = brief if row.state == "PENDING" else ""
    has_restarted = row.starts > 1 or (row.starts and row.state in {"PENDING", "REQUEUED"})
    times = "once" if row.starts == 1 else f"{row.starts} times"
    reason = "; ".join(filter(None, [reason, f"started {times}" if has_restarted else ""]))
    nodes = row.nodes or row.nodes_asked
    name = " ".join([row.name, *map("=".join, row.values.items())])
    return (row.job_id, name, row.site, state, nodes, row.ranks, elapsed, row.progress, row.exit_code, reason)


def _format_time(timestamp: str) -> str:
    """Format an ISO 8601 time for people: without the date if it is today."""
    parsed_time = datetime.fromisoformat(timestamp)
    is_today = parsed_time.date() == datetime.now(parsed_time.tzinfo).date()
    return f"{parsed_time:%H:%M:%S}" if is_today else f"{parsed_time:%Y-%m-%d %H:%M}"


def _report_removed(removed_runs: "Sequence[Run]") -> None:
    """Print which run directories were removed, and which of their jobs are still pending or running."""
    from hpcrun.jobs.states import describe_state
    from hpcrun.schedulers.recovery import find_jobs_without_directory

    active_jobs = find_jobs_without_directory(removed_runs)
    for run, state in active_jobs.items():
        message = f"the run directory {run.directory} is gone, but its job {run.job_id} is {describe_state(state.name)}"
        output.message(f"{message}: hpcrun cancel {run.job_id} ends it")
    if missing_runs := [run for run in removed_runs if run not in active_jobs]:
        message = (
            f"the run directory {missing_runs[0].directory} is"
            if len(missing_runs) == 1
            else f"{len(missing_runs)} run directories are"
        )
        output.message(f"{message} gone; hpcrun status --rebuild removes such runs from the index")


def _watch(query: "Callable[[], list[StatusRow]]", seconds: float, *, until_ended: bool) -> None:
    """Print the table repeatedly; on a terminal, redraw it in place.

    Args:
        query: Function that returns the rows of the table.
        seconds: The interval in s; sites may set a longer minimum.
        until_ended: Whether to stop once all jobs of the table have ended.
    """
    terminal, requested = sys.stdout.isatty(), seconds
    while True:
        table = query()
        minimums = (_minimum_interval(row.run_dir) for row in table if row.active)
        seconds = max([requested, *minimums])
        header = f"every {seconds:g} s, {datetime.now().astimezone():%H:%M:%S}; Ctrl+C stops it"
        if terminal:
            output.screen(
                [header, *output.text(COLUMNS, map(cells, table), optional_columns=OPTIONAL_COLUMNS).splitlines()]
            )
        else:
            output.table(COLUMNS, map(cells, table), optional_columns=OPTIONAL_COLUMNS)
            sys.stdout.flush()
        if until_ended and all(row.finished for row in table):
            return
        time.sleep(seconds)


@cache
def _minimum_interval(run_dir: str) -> float:
    """Return the minimum interval of Slurm queries that the site of a run sets, in s."""
    from hpcrun.jobs.runs import Run

    return Run(Path(run_dir)).poll_seconds
