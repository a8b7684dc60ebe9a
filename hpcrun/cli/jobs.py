"""``hpcrun result`` and ``cancel``."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.arguments import Jobs, Json, Since, States
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.rows import Row
    from hpcrun.jobs.runs import Run


def result(jobs: Jobs = None, as_json: Json = False) -> None:
    """Show the figures that jobs ended with.

    Without a JOB, the last one's.

    \b
    Examples:
      hpcrun result
      hpcrun result lenet5 --json
      hpcrun result 'resnet*'
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import select

    words = jobs or ["last"]
    runs = select.select(words)
    if len(runs) > 1 or len(words) > 1 or not select.means_one(words[0]):
        show_results(runs, as_json=as_json)
        return
    from hpcrun.cli.follow import show_result

    run = runs[0]
    figures = run.result()
    if figures is None:
        ended = run.ended()
        how = f"it ended: {ended.reason}" if ended else "it has not ended" if run.job_id else "it was never submitted"
        hint = f"hpcrun logs {run.job_id or run.directory}"
        if why := run.faults.get("result.json"):
            how = f"result.json {why}"
        raise HpcrunError(f"job {run.job_id or '-'} ({run.name}) has no result; {how}", hint=hint, exit_code=1)
    if as_json:
        output.value(figures)
    else:
        show_result(run, everything=True)


def show_results(runs: "Sequence[Run]", *, as_json: bool = False) -> None:
    """Show several jobs' figures side by side; a job without a result has an empty row."""
    from hpcrun.jobs.figures import FIGURES, shown

    figures = [(run, run.result()) for run in runs]
    swept = list(dict.fromkeys(name for run in runs for name in run.values))
    if as_json:
        output.value([{**run.facts(), "result": result} for run, result in figures])
        return
    keys = dict.fromkeys(key for _, result in figures for key in result or {})
    if not keys:
        hint = "hpcrun status tells what became of them"
        raise HpcrunError(f"none of these {len(runs)} jobs has a result", hint=hint, exit_code=1)
    columns = [key for key in FIGURES if key in keys] or [key for key in keys if key != "versions"]
    output.table(
        ("job", "name", *swept, *(FIGURES.get(key, key.replace("_", " ")) for key in columns)),
        [
            (
                run.job_id,
                run.name,
                *(run.values.get(name, "") for name in swept),
                *(shown(result[key]) if result and key in result else "" for key in columns),
            )
            for run, result in figures
        ],
    )


def cancel(
    jobs: Jobs = None,
    state: States = None,
    since: Since = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before several jobs are cancelled.")] = False,
) -> None:
    """End jobs with all their ranks.

    The ranks get SIGTERM, and time to write a checkpoint (30 s, if the
    site does not say otherwise); Ctrl+C ends them at once.

    \b
    Examples:
      hpcrun cancel 1234
      hpcrun cancel 1234-1250 last
      hpcrun cancel 'resnet*' --state pending
      hpcrun cancel all --since 2h --yes
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.cli.stopping import stop_all
    from hpcrun.jobs import rows, select, states
    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.recovery import living

    words = jobs or []
    if not words and state is None and since is None:
        raise HpcrunError("no job was named", hint=select.FORMS)
    names = states.named(state) if state is not None else frozenset[str]()
    earliest = select.moment(since) if since is not None else None
    gone: list[Run] = []
    lost: select.GoneError | None = None
    told: Sequence[Row] = []
    try:
        told = rows.chosen(words, schedulers.states, states=names, since=earliest, gone=gone)
    except select.GoneError as error:
        gone, lost = list(error.runs), error
    precise = bool(words) and all(map(select.means_one, words))
    # of an unknown job its user may know more than its scheduler; but a pattern means those that wait or run
    wanted = [row for row in told if (not row.finished if precise else row.active)]
    homeless = {run: now for run, now in living(gone).items() if not names or now.name in names}
    if not (wanted or homeless):
        raise lost or _nothing_to_cancel(told)
    if len(wanted) + len(homeless) > 1 and not yes and (not words or any(map(select.broad, words))):
        _confirm(
            [
                *((row.job_id, row.name, row.state, row.elapsed) for row in wanted),
                *((run.job_id, run.name, now.name, now.elapsed) for run, now in homeless.items()),
            ]
        )
    for run in homeless:
        schedulers.of(run).cancel(run)
        output.message(f"job {run.job_id} is being cancelled; its run directory {run.directory} is gone")
    if wanted:
        stop_all([Run(Path(row.run_dir)) for row in wanted])


def _nothing_to_cancel(told: "Sequence[Row]") -> HpcrunError:
    if len(told) != 1:
        what = f"none of these {len(told)} jobs waits or runs" if told else "no job is so"
        return HpcrunError(what, hint="hpcrun status lists them", exit_code=1)
    row = told[0]
    if row.job_id is None and row.faults:
        return HpcrunError(f"{row.run_dir}: {row.faults}", hint="nobody knows its job: squeue --me lists yours")
    if row.job_id is None:
        return HpcrunError(f"{row.run_dir} was never submitted", hint="there is nothing to cancel")
    hint = f"hpcrun logs {row.job_id}"
    return HpcrunError(f"job {row.job_id} has ended already: {row.state}", hint=hint, exit_code=1)


def _confirm(wanted: "Sequence[tuple[str | None, str, str, str]]") -> None:
    """List jobs, each by its id, name, state and run time, and ask once whether they are meant.

    Raises:
        HpcrunError: There is nobody to ask.
        Exit: They are not.
    """
    from hpcrun.jobs.states import plain

    for job_id, name, state, elapsed in wanted:
        output.message(f"  {job_id}  {name}  {plain(state)}  {elapsed}".rstrip())
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise HpcrunError(f"these are {len(wanted)} jobs, and nobody is here to ask", hint="--yes cancels them all")
    if not typer.confirm(f"Cancel these {len(wanted)} jobs?", err=True):
        output.message("no job was cancelled")
        raise typer.Exit(1)
