"""``hpcrun prune``: remove run directories of ended jobs."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import Jobs, Json, States
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.status_rows import StatusRow

MAX_LISTED_RUNS = 20
"""Maximum number of runs listed before the confirmation."""


def prune(
    jobs: Jobs = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Least time since the jobs ended, as 30d, 8w or 12h."),
    ] = None,
    state: States = None,
    keep_results: Annotated[
        bool,
        typer.Option("--keep-results", help="Keep scripts, results and metrics, and remove logs and checkpoints."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Remove without confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """Remove run directories of jobs that have ended.

    Pending and running jobs are skipped. Jobs in an unknown state are skipped unless you name each of them.

    \b
    Examples:
      hpcrun prune --older-than 30d --keep-results
      hpcrun prune --older-than 8w --state failed,cancelled --dry-run
      hpcrun prune last --yes
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import states

    wanted_states = states.parse_states(state) if state is not None else frozenset[str]()
    if not jobs and older_than is None and state is None:
        hint = "hpcrun prune --older-than 30d, --state failed, or name jobs (all: all ended jobs)"
        raise HpcrunError("no run was selected", hint=hint)
    selected_runs, skipped = _select(jobs or [], older_than, wanted_states)
    for row, reason in skipped:
        output.message(f"job {row.job_id or '-'} ({row.name}) is skipped: {reason}")
    sizes = _measure_sizes([run for _, run in selected_runs], keep_results=keep_results)
    selected_runs = [(row, run) for row, run in selected_runs if sizes[run] or not keep_results]
    if not selected_runs:
        if skipped and jobs:
            has_active = any(row.active for row, _ in skipped)
            hint = (
                "hpcrun cancel ends jobs" if has_active else "check it; rm -r removes a directory that you do not need"
            )
            raise HpcrunError("nothing was removed", hint=hint, exit_code=1)
        output.message("there is nothing to remove")
    elif not as_json:
        _show(selected_runs, sizes)
    if dry_run or not selected_runs:
        _report(selected_runs if dry_run else [], sizes, [], as_json=as_json, is_removed=False)
        return
    if not yes:
        _confirm(len(selected_runs), keep_results=keep_results)
    removed_runs, errors = _remove(selected_runs, keep_results=keep_results)
    _report(removed_runs, sizes, errors, as_json=as_json, is_removed=True)


def _select(
    jobs: list[str], older_than: str | None, wanted_states: frozenset[str]
) -> "tuple[list[tuple[StatusRow, Run]], list[tuple[StatusRow, str]]]":
    """Return the matching runs that may be removed, and the other matching runs, each with the reason to keep it."""
    from hpcrun import schedulers
    from hpcrun.jobs import run_selection, status_rows
    from hpcrun.jobs.prune import end_time, find_obstacle
    from hpcrun.jobs.runs import Run

    latest_end = run_selection.parse_time(older_than) if older_than is not None else None
    matching_rows = status_rows.select_rows(
        jobs, schedulers.query_states, states=wanted_states, missing_runs=[], purpose="modify"
    )
    are_runs_named = bool(jobs) and all(map(run_selection.selects_one_run, jobs))
    pairs = [(row, Run(Path(row.run_dir))) for row in matching_rows]
    old_runs = [(row, run) for row, run in pairs if latest_end is None or end_time(run) < latest_end]
    # if sbatch did not refuse the job, a run without a job id may have a job that hpcrun has not found yet
    has_ended = {run: row.finished and bool(row.job_id or run.refusal) for row, run in old_runs}
    selected_runs: list[tuple[StatusRow, Run]] = []
    skipped: list[tuple[StatusRow, str]] = []
    for row, run in old_runs:
        if row.active or not (has_ended[run] or are_runs_named):
            state = f"it is {row.state.lower()}" if row.active else "its job may still run, its state is unknown"
            skipped.append((row, state))
        elif reason := find_obstacle(run):
            skipped.append((row, f"{reason} ({run.directory})"))
        else:
            selected_runs.append((row, run))
    return selected_runs, skipped


def _measure_sizes(runs: "list[Run]", *, keep_results: bool) -> "dict[Run, int]":
    from hpcrun.jobs.prune import disk_usage

    return {run: disk_usage(run, keep_results=keep_results) for run in output.progress(runs, "measuring")}


def _show(selected_runs: "list[tuple[StatusRow, Run]]", sizes: "dict[Run, int]") -> None:
    from hpcrun.jobs.states import describe_state

    table = [
        (
            row.job_id,
            row.name,
            describe_state(row.state),
            (row.submitted or "")[:10],
            format_size(sizes[run]),
            run.directory,
        )
        for row, run in selected_runs[:MAX_LISTED_RUNS]
    ]
    output.table(("job", "name", "state", "submitted", "size", "run directory"), table)
    if len(selected_runs) > MAX_LISTED_RUNS:
        print(f"and {len(selected_runs) - MAX_LISTED_RUNS} more")


def _confirm(count: int, *, keep_results: bool) -> None:
    """Ask once for confirmation.

    Raises:
        HpcrunError: There is no terminal to ask on.
        Exit: The user declined.
    """
    subject = f"{count} run director{'y' if count == 1 else 'ies'}" + (" except their results" if keep_results else "")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise HpcrunError(
            f"removing {subject} needs confirmation, and there is no terminal to ask on",
            hint="--yes removes them; --dry-run lists them",
        )
    if not typer.confirm(f"Remove {subject} permanently?", err=True):
        output.message("nothing was removed")
        raise typer.Exit(1)


def _remove(
    selected_runs: "list[tuple[StatusRow, Run]]", *, keep_results: bool
) -> "tuple[list[tuple[StatusRow, Run]], list[tuple[Run, str]]]":
    """Remove run directories; return the removed runs, and each run that could not be removed with its error."""
    from hpcrun.jobs.prune import remove_from_index, remove_run

    removed_runs, errors = [], []
    for row, run in output.progress(selected_runs, "removing"):
        try:
            note = remove_run(run, keep_results=keep_results)
        except OSError as error:
            errors.append((run, f"{error.filename or run.directory}: {error.strerror}"))
        else:
            removed_runs.append((row, run))
            if note:
                output.message(note)
    if not keep_results:
        remove_from_index(run.directory for _, run in removed_runs)
    return removed_runs, errors


def _report(
    selected_runs: "list[tuple[StatusRow, Run]]",
    sizes: "dict[Run, int]",
    errors: "list[tuple[Run, str]]",
    *,
    as_json: bool,
    is_removed: bool,
) -> None:
    """Print the runs that were removed, or would be removed.

    Raises:
        Exit: Some run directories could not be removed.
    """
    total = sum(sizes[run] for _, run in selected_runs)
    if as_json:
        runs = [
            {"job_id": row.job_id, "name": row.name, "run_dir": row.run_dir, "bytes": sizes[run]}
            for row, run in selected_runs
        ]
        failures = [{"run_dir": str(run.directory), "why": reason} for run, reason in errors]
        output.value({"removed": is_removed, "bytes": total, "runs": runs, "failed": failures})
    elif selected_runs:
        count = "1 run directory" if len(selected_runs) == 1 else f"{len(selected_runs)} run directories"
        output.message(f"{format_size(total)} in {count} " + ("were removed" if is_removed else "would be removed"))
    for run, reason in errors:
        output.message(f"ERROR: {run.directory} could not be removed: {reason}")
    if errors:
        raise typer.Exit(1)


def format_size(size: int) -> str:
    """Format a size on disk in powers of 1000, such as ``1.2 GB``."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
