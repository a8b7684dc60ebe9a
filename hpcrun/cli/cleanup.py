"""``hpcrun cleanup``: end and remove what jobs left behind."""

from __future__ import annotations

import shlex
import sys
import threading
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.arguments import recovered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.cleanup.reach import Answer, Visit
    from hpcrun.cleanup.targets import Target

PATIENCE = 5.0
"""Seconds after which somebody is told what is waited for."""

MOST_NAMED = 5
MOST_LISTED = 20
MOST_LETTERS = 100

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
    everything: Annotated[bool, typer.Option("--all", help="After all my ended jobs, as without a JOB.")] = False,
    hostfile: Annotated[
        Path | None, typer.Option("--hostfile", metavar="FILE", help="On these hosts, not on those each job had.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="SIGKILL to what does not heed SIGTERM; without a terminal: do not ask, too."),
    ] = False,
    grace: Annotated[float, typer.Option("--grace", metavar="SECONDS", min=0, help="Time to heed it.")] = 5.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be ended and removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value.")] = False,
) -> None:
    """End and remove what jobs left behind, on every node they had.

    That is processes (also those that hid from the scheduler), segments in
    /dev/shm, sockets, temporary folders named after the job, and its
    hostfile. Only what is beyond doubt that job's is touched; what is in
    doubt is listed. Without a JOB it is after all your jobs that have ended;
    one that still runs is listed, and ended only if you name it.

    Exit code 0: nothing is left. 1: something is, or a node was not reached.

    \b
    Examples:
      hpcrun cleanup --force
      hpcrun cleanup last
      hpcrun cleanup 1234 --force
      hpcrun cleanup --dry-run
      hpcrun cleanup --hostfile hosts train.py
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.cleanup import cleaning, targets

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
        answers = _visit(cleaning.visits(chosen, act=False, force=force, grace=grace))
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
    answers = [*_visit(visits), *unreached]
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
                hand = _by_hand(answer.node, one["path"]) if one["doubtful"] else ""
                output.message(f"{where} {one['path']} is left: {one['why']}{hand}")
        _tell_unclaimed(answer)
    if unreached := {answer.node for answer in answers if answer.error}:
        again = [target.run.job_id for target in targets if unreached & set(target.nodes)]
        words = " ".join(map(str, again)) if len(again) <= MOST_NAMED else "--all"
        output.message(f"HINT: when these nodes can be reached again: hpcrun cleanup {words}")
    if as_json:
        nodes = [
            {
                "node": answer.node,
                "error": answer.error or None,
                "unclaimed": answer.unclaimed,
                "jobs": [{"job_id": ids[run_dir], "run_dir": run_dir, **told} for run_dir, told in answer.told.items()],
            }
            for answer in answers
        ]
        output.value({"clean": not failed, "hostfiles_removed": list(hostfiles) if acted else [], "nodes": nodes})
    else:
        _table(answers, hostfiles, acted=acted)
    raise typer.Exit(int(failed))


def _tell_unclaimed(answer: Answer) -> None:
    """List the processes that nothing tells whose they are; ending them is for who knows them."""
    if not answer.unclaimed:
        return
    many = len(answer.unclaimed) > 1
    what = f"{len(answer.unclaimed)} processes" if many else "1 process"
    output.message(
        f"{answer.node}: {what} of yours began while the job ran, and {'belong' if many else 'belongs'} to no job that "
        f"hpcrun knows: listed, not ended, for nothing tells whose {'they are' if many else 'it is'}"
    )
    for one in answer.unclaimed[:MOST_LISTED]:
        output.message(f"{answer.node}: process {one['pid']}, {one['seconds']} s old: {one['command'][:MOST_LETTERS]}")
    if len(answer.unclaimed) > MOST_LISTED:
        output.message(f"{answer.node}: and {len(answer.unclaimed) - MOST_LISTED} more; --json lists all")


def _visit(visits: Sequence[Visit]) -> list[Answer]:
    """Visit nodes, and say what is waited for where it takes long."""
    from hpcrun.cleanup import reach

    what = f"waiting for {_nodes(visits)}: Slurm may run its Prolog there first"
    timer = threading.Timer(PATIENCE, output.message, [what])
    if any(way.by_slurm for visit in visits for way in visit.ways):
        timer.start()
    try:
        return reach.call(visits)
    finally:
        timer.cancel()


def _by_hand(node: str, path: str) -> str:
    from hpcrun.cleanup.targets import is_here

    words = shlex.join(["rm", "-r", "--", path])
    return f"; by hand: {words if is_here(node) else shlex.join(['ssh', node, words])}"


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
