"""``hpcrun prune``: run directories that nobody needs any more."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.arguments import Jobs, Json, States
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.jobs.rows import Row
    from hpcrun.jobs.runs import Run

SHOWN = 20
"""So many runs are listed before the user is asked."""


def prune(
    jobs: Jobs = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Only jobs that ended so long ago: 30d, 8w, 12h.")
    ] = None,
    state: States = None,
    keep_results: Annotated[
        bool,
        typer.Option("--keep-results", help="Keep scripts, results and metrics: logs and checkpoints go."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove run directories of jobs that have ended.

    Jobs that wait or run are left alone. So are those of which nobody knows
    whether they do, unless they are named one by one.

    \b
    Examples:
      hpcrun prune --older-than 30d --keep-results
      hpcrun prune --older-than 8w --state failed,cancelled --dry-run
      hpcrun prune last --yes
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import states

    wanted = states.named(state) if state is not None else frozenset[str]()
    if not jobs and older_than is None:
        hint = "hpcrun prune --older-than 30d, or name jobs (all for all that have ended)"
        raise HpcrunError("nothing says which runs are meant", hint=hint)
    chosen, left = _choose(jobs or [], older_than, wanted)
    for row, why in left:
        output.message(f"job {row.job_id or '-'} ({row.name}) is left alone: {why}")
    sizes = _sizes([run for _, run in chosen], keep_results=keep_results)
    chosen = [(row, run) for row, run in chosen if sizes[run] or not keep_results]
    if not chosen:
        if left and jobs:
            running = any(row.active for row, _ in left)
            hint = "hpcrun cancel ends jobs" if running else "look at it; rm -r removes what you know to be of no use"
            raise HpcrunError("nothing was removed", hint=hint, exit_code=1)
        output.message("there is nothing to remove")
    elif not as_json:
        _show(chosen, sizes)
    if dry_run or not chosen:
        _close(chosen if dry_run else [], sizes, [], as_json=as_json, done=False)
        return
    if not yes:
        _confirm(len(chosen), keep_results=keep_results)
    removed, faults = _remove(chosen, keep_results=keep_results)
    _close(removed, sizes, faults, as_json=as_json, done=True)


def _choose(
    jobs: list[str], older_than: str | None, wanted: frozenset[str]
) -> "tuple[list[tuple[Row, Run]], list[tuple[Row, str]]]":
    """Return what may be removed, and what fits what was asked for and may not, with the reason."""
    from hpcrun import schedulers
    from hpcrun.jobs import rows, select
    from hpcrun.jobs.prune import ended_at, refusal
    from hpcrun.jobs.runs import Run

    before = select.moment(older_than) if older_than is not None else None
    told = rows.chosen(jobs, schedulers.states, states=wanted, gone=[])
    precise = bool(jobs) and all(map(select.means_one, jobs))
    both = [(row, Run(Path(row.run_dir))) for row in told]
    old = [(row, run) for row, run in both if before is None or ended_at(run) < before]
    # a run without a job, that was not refused one, may have one that nobody has found yet
    over = {run: row.finished and bool(row.job_id or run.refusal) for row, run in old}
    chosen: list[tuple[Row, Run]] = []
    left: list[tuple[Row, str]] = []
    for row, run in old:
        if row.active or not (over[run] or precise):
            alive = f"it is {row.state.lower()}" if row.active else "nobody knows whether there is a job that runs"
            left.append((row, alive))
        elif why := refusal(run):
            left.append((row, f"{why} ({run.directory})"))
        else:
            chosen.append((row, run))
    return chosen, left


def _sizes(runs: "list[Run]", *, keep_results: bool) -> "dict[Run, int]":
    from hpcrun.jobs.prune import size

    return {run: size(run, keep_results=keep_results) for run in output.progress(runs, "measuring")}


def _show(chosen: "list[tuple[Row, Run]]", sizes: "dict[Run, int]") -> None:
    from hpcrun.jobs.states import plain

    table = [
        (row.job_id, row.name, plain(row.state), (row.submitted or "")[:10], readable(sizes[run]), run.directory)
        for row, run in chosen[:SHOWN]
    ]
    output.table(("job", "name", "state", "submitted", "size", "run directory"), table)
    if len(chosen) > SHOWN:
        print(f"and {len(chosen) - SHOWN} more")


def _confirm(count: int, *, keep_results: bool) -> None:
    """Ask once whether these runs are meant.

    Raises:
        HpcrunError: There is nobody to ask.
        Exit: They are not.
    """
    what = f"{count} run director{'y' if count == 1 else 'ies'}" + (", but their results," if keep_results else "")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise HpcrunError(
            f"nobody is here to ask whether {what} may go", hint="--yes removes them; --dry-run lists them"
        )
    if not typer.confirm(f"Remove {what} for good?", err=True):
        output.message("nothing was removed")
        raise typer.Exit(1)


def _remove(
    chosen: "list[tuple[Row, Run]]", *, keep_results: bool
) -> "tuple[list[tuple[Row, Run]], list[tuple[Run, str]]]":
    """Remove, and return what went and what did not, with the reason."""
    from hpcrun.jobs.prune import forget, remove

    removed, faults = [], []
    for row, run in output.progress(chosen, "removing"):
        try:
            note = remove(run, keep_results=keep_results)
        except OSError as error:
            faults.append((run, f"{error.filename or run.directory}: {error.strerror}"))
        else:
            removed.append((row, run))
            if note:
                output.message(note)
    if not keep_results:
        forget(run.directory for _, run in removed)
    return removed, faults


def _close(
    chosen: "list[tuple[Row, Run]]",
    sizes: "dict[Run, int]",
    faults: "list[tuple[Run, str]]",
    *,
    as_json: bool,
    done: bool,
) -> None:
    """Tell what was removed, or would be; end with 1 where something could not be."""
    total = sum(sizes[run] for _, run in chosen)
    if as_json:
        told = [
            {"job_id": row.job_id, "name": row.name, "run_dir": row.run_dir, "bytes": sizes[run]} for row, run in chosen
        ]
        failed = [{"run_dir": str(run.directory), "why": why} for run, why in faults]
        output.value({"removed": done, "bytes": total, "runs": told, "failed": failed})
    elif chosen:
        one = "1 run directory" if len(chosen) == 1 else f"{len(chosen)} run directories"
        output.message(f"{readable(total)} in {one} " + ("are free again" if done else "could go"))
    for run, why in faults:
        output.message(f"ERROR: {run.directory} could not be removed: {why}")
    if faults:
        raise typer.Exit(1)


def readable(size: int) -> str:
    """Return a size on disk as people read it, in powers of 1000, such as ``1.2 GB``."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"
