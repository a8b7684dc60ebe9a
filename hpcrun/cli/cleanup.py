"""``hpcrun cleanup``: end and remove what jobs left behind."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.arguments import recovered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.cleanup.reach import Answer
    from hpcrun.cleanup.targets import Target

Jobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Job ids, last, job names, run directories, or scripts that jobs ran.",
        autocompletion=completion.jobs,
        callback=recovered,
    ),
]


def cleanup(
    jobs: Jobs = None,
    everything: Annotated[bool, typer.Option("--all", help="After all my jobs that have ended.")] = False,
    hostfile: Annotated[
        Path | None, typer.Option("--hostfile", metavar="FILE", help="On these hosts, not on those each job had.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="SIGKILL to what does not heed SIGTERM.")] = False,
    grace: Annotated[float, typer.Option("--grace", metavar="SECONDS", min=0, help="Time to heed it.")] = 5.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be ended and removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value.")] = False,
) -> None:
    """End and remove what jobs left behind, on every node they had.

    That is processes (also those that hid from the scheduler), segments in
    /dev/shm, sockets, temporary folders named after the job, and its
    hostfile. Only what is beyond doubt that job's is touched; what is in
    doubt is listed. A job that still runs is ended only if you name it.

    Exit code 0: nothing is left. 1: something is, or a node was not reached.

    \b
    Examples:
      hpcrun cleanup last
      hpcrun cleanup 1234 --force
      hpcrun cleanup --all --dry-run
      hpcrun cleanup --hostfile hosts train.py
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.cleanup import cleaning, reach, targets

    chosen, notes = targets.choose(jobs or (), everything=everything, hostfile=hostfile)
    for note in notes:
        output.message(note)
    running = [target for target in chosen if target.runs]
    for target in running:
        what = f"job {target.run.job_id} ({target.run.name}) is {target.state.name}"
        if target.state.name == "UNKNOWN":
            output.message(f"{what} ({target.state.reason}): cleaning up ends what of it is on {_nodes(target.nodes)}")
        else:
            output.message(f"{what}: cleaning up ends it")
    terminal = sys.stdin.isatty()
    # without a terminal nobody can be asked: --force says that it is meant, but not that a running job is
    unasked = yes or (force and not terminal and not running)
    unreached: list[Answer] = []
    if dry_run or not unasked:
        answers = reach.call(cleaning.visits(chosen, act=False, force=force, grace=grace))
        unreached = [answer for answer in answers if answer.error]
        something = _list(chosen, answers) or bool(running)
        if not dry_run and not something:
            cleaning.close(chosen, answers)
        hostfiles = [str(file) for target in chosen for file in target.hostfiles]
        if dry_run or not something:
            _end(chosen, answers, hostfiles, as_json=as_json, acted=False, left=False)
        if not terminal:
            hint = "--yes" if running else "--yes (or --force)"
            output.message(f"nothing was ended or removed: there is no terminal to ask on, and no {hint} was given")
            _end(chosen, answers, hostfiles, as_json=as_json, acted=False, left=True)
        if not typer.confirm("End and remove this?", err=True):
            _end(chosen, answers, hostfiles, as_json=as_json, acted=False, left=True)
    chosen = [cleaning.stop(target) if target.runs else target for target in chosen]
    gone = {(answer.node, answer.conf) for answer in unreached}
    visits = cleaning.visits(chosen, act=True, force=force, grace=grace)
    visits = [visit for visit in visits if (visit.node, visit.conf) not in gone]
    answers = [*reach.call(visits), *unreached]
    _end(chosen, answers, cleaning.close(chosen, answers), as_json=as_json, acted=True, left=False)


def _list(targets: Sequence[Target], answers: Sequence[Answer]) -> bool:
    """Tell what would be ended and removed, and return whether there is any."""
    ids = {str(target.run.directory): target.run.job_id for target in targets}
    lines = []
    for answer in answers:
        for run_dir, told in answer.told.items():
            where = f"{answer.node}: job {ids[run_dir]}:"
            lines += [f"{where} process {one['pid']} ({one['name']})" for one in told["processes"]]
            lines += [f"{where} {path}" for path in told["files"]]
    lines += [str(file) for target in targets for file in target.hostfiles]
    for line in lines:
        output.message(line)
    return bool(lines)


def _end(
    targets: Sequence[Target],
    answers: Sequence[Answer],
    hostfiles: Sequence[str],
    *,
    as_json: bool,
    acted: bool,
    left: bool,
) -> None:
    """Tell what happened, and exit: 1 where something is left."""
    from hpcrun.cleanup.cleaning import remaining

    ids = {str(target.run.directory): target.run.job_id for target in targets}
    failed = left or any(answer.error or (acted and remaining(answer)) for answer in answers)
    for answer in answers:
        if answer.error:
            output.message(f"{answer.node} was not reached: {answer.error}")
        for run_dir, told in answer.told.items():
            where = f"{answer.node}: job {ids[run_dir]}:"
            for one in told["survivors"] if acted else ():
                output.message(f"{where} process {one['pid']} ({one['name']}) lives on; --force ends it by SIGKILL")
            for one in told["spared"]:
                output.message(f"{where} process {one['pid']} ({one['name']}) is left: this command runs under it")
            for one in told["left"]:
                output.message(f"{where} {one['path']} is left: {one['why']}")
    if as_json:
        nodes = [
            {
                "node": answer.node,
                "error": answer.error or None,
                "jobs": [{"job_id": ids[run_dir], "run_dir": run_dir, **told} for run_dir, told in answer.told.items()],
            }
            for answer in answers
        ]
        output.value({"clean": not failed, "hostfiles_removed": list(hostfiles) if acted else [], "nodes": nodes})
    else:
        _table(answers, hostfiles, acted=acted)
    raise typer.Exit(int(failed))


def _nodes(nodes: Sequence[object]) -> str:
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}"


def _table(answers: Sequence[Answer], hostfiles: Sequence[str], *, acted: bool) -> None:
    rows: list[list[object]] = []
    for answer in answers:
        told: list[dict[str, Any]] = list(answer.told.values())
        alive = sum(len(one["survivors"]) for one in told)
        found = sum(len(one["processes"]) for one in told)
        files = sum(len(one["removed" if acted else "files"]) for one in told)
        left = sum(len(one["left"]) for one in told) + (alive if acted else 0)
        if answer.error:
            rows.append([answer.node, "", "", "not reached"])
        elif found or files or left:
            rows.append([answer.node, max(found - alive, 0) if acted else found, files, left])
    if rows:
        headings = ("processes ended", "files removed", "left") if acted else ("processes", "files", "in doubt")
        output.table(("node", *headings), rows)
    if hostfiles:
        output.message(f"hostfiles{' removed' * acted}: {len(hostfiles)}")
    if not rows and not hostfiles:
        output.message(f"there is nothing to clean on {_nodes(answers)}")
