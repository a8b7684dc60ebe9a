"""``hpcrun cleanup``: end processes and remove files that jobs left behind."""

from __future__ import annotations

import shlex
import sys
import threading
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.parameters import Json, recover_submissions
from hpcrun.errors import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.cleanup.node_cleanups import NodeCleanup, NodeResult
    from hpcrun.cleanup.selection import Target

WAIT_MESSAGE_SECONDS = 5.0
"""Time in s after which a message says that nodes have not answered yet."""

MAX_NAMED_JOBS = 5
MAX_LISTED_PROCESSES = 20
MAX_COMMAND_CHARACTERS = 100

Jobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]...",
        help="Job ids, last, job names, run directories, or scripts that jobs ran.",
        autocompletion=completion.jobs,
        callback=recover_submissions,
    ),
]


def cleanup(
    jobs: Jobs = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Clean up after all your ended jobs, as without a JOB.")
    ] = False,
    hostfile: Annotated[
        Path | None,
        typer.Option("--hostfile", metavar="FILE", help="Clean up on these hosts instead of the nodes of each job."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Kill processes that ignore SIGTERM, and without a terminal skip the confirmation."
        ),
    ] = False,
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0, help="Seconds between SIGTERM and SIGKILL.")
    ] = 5.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the processes and files.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Clean up without confirmation.")] = False,
    as_json: Json = False,
) -> None:
    """End processes and remove files that jobs left on their nodes.

    The command ends processes (also those that escaped from Slurm), and removes segments in /dev/shm, sockets,
    temporary folders named after the job, and the job's hostfile. The command removes only files that certainly belong
    to the job, and lists doubtful files. Without a JOB, it cleans up after all your ended jobs; a job that still runs
    is listed, and ended only if you name it.

    Exit code 0: nothing is left. 1: something is left, or a node cannot be
    reached.

    \b
    Examples:
      hpcrun cleanup --force
      hpcrun cleanup last
      hpcrun cleanup 1234 --force
      hpcrun cleanup --dry-run
      hpcrun cleanup --hostfile hosts train.py
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.cleanup import coordinator
    from hpcrun.cleanup.selection import select_targets

    targets_to_clean, notes = select_targets(jobs or (), all_jobs=everything, hostfile=hostfile)
    for note in notes:
        output.message(note)
    running_targets = [target for target in targets_to_clean if target.is_active]
    for target in running_targets:
        subject = f"job {target.run.job_id} ({target.run.name}) is {target.state.name}"
        if target.state.name == "UNKNOWN":
            output.message(
                f"{subject} ({target.state.reason}): cleanup ends its processes on "
                f"{pluralize(len(target.nodes), 'node')}"
            )
        else:
            output.message(f"{subject}: cleanup ends it")
    terminal = sys.stdin.isatty()
    # without a terminal, --force replaces the confirmation, but not for running jobs
    is_confirmed = yes or (force and not terminal and not running_targets)
    unreached_results: list[NodeResult] = []
    if dry_run or not is_confirmed:
        results = _run_node_cleanups(
            coordinator.plan_node_cleanups(targets_to_clean, dry_run=True, force=force, grace=grace)
        )
        unreached_results = [result for result in results if result.error]
        has_leftovers_to_clean = _list_processes_and_files(targets_to_clean, results) or bool(running_targets)
        if not dry_run and not has_leftovers_to_clean:
            coordinator.record_clean_jobs(targets_to_clean, results)
        hostfiles = [str(file) for target in targets_to_clean for file in target.hostfiles]
        if dry_run or not has_leftovers_to_clean:
            _report(targets_to_clean, results, hostfiles, as_json=as_json, is_cleaned=False, has_leftover_files=False)
        if not terminal:
            hint = "--yes" if running_targets else "--yes (or --force)"
            output.message(f"nothing was ended or removed: there is no terminal to ask on, and {hint} was not given")
            _report(targets_to_clean, results, hostfiles, as_json=as_json, is_cleaned=False, has_leftover_files=True)
        if not typer.confirm("End these processes and remove these files?", err=True):
            _report(targets_to_clean, results, hostfiles, as_json=as_json, is_cleaned=False, has_leftover_files=True)
    targets_to_clean = [coordinator.cancel_job(target) if target.is_active else target for target in targets_to_clean]
    unreachable_nodes = {(result.node, result.slurm_conf) for result in unreached_results}
    node_cleanups = coordinator.plan_node_cleanups(targets_to_clean, dry_run=False, force=force, grace=grace)
    node_cleanups = [
        node_cleanup
        for node_cleanup in node_cleanups
        if (node_cleanup.node, node_cleanup.slurm_conf) not in unreachable_nodes
    ]
    results = [*_run_node_cleanups(node_cleanups), *unreached_results]
    _report(
        targets_to_clean,
        results,
        coordinator.record_clean_jobs(targets_to_clean, results),
        as_json=as_json,
        is_cleaned=True,
        has_leftover_files=False,
    )


def _list_processes_and_files(targets: Sequence[Target], results: Sequence[NodeResult]) -> bool:
    """Print the processes and files to clean up; return whether there are any."""
    ids = {str(target.run.directory): target.run.job_id for target in targets}
    lines = []
    for result in results:
        for run_dir, report in result.jobs.items():
            prefix = f"{result.node}: job {ids[run_dir]}:"
            lines += [f"{prefix} process {process.pid} ({process.name})" for process in report.processes]
            lines += [f"{prefix} {path}" for path in report.files]
    lines += [str(file) for target in targets for file in target.hostfiles]
    for line in lines:
        output.message(line)
    return bool(lines)


def _report(
    targets: Sequence[Target],
    results: Sequence[NodeResult],
    hostfiles: Sequence[str],
    *,
    as_json: bool,
    is_cleaned: bool,
    has_leftover_files: bool,
) -> None:
    """Print the result of a cleanup, and exit with code 1 if processes or files are left."""
    from hpcrun.cleanup.coordinator import has_leftovers

    ids = {str(target.run.directory): target.run.job_id for target in targets}
    has_failed = has_leftover_files or any(result.error or (is_cleaned and has_leftovers(result)) for result in results)
    for result in results:
        if result.error:
            output.message(f"{result.node} was not reached: {result.error}")
        for run_dir, report in result.jobs.items():
            prefix = f"{result.node}: job {ids[run_dir]}:"
            for process in report.survivors if is_cleaned else ():
                name = f"process {process.pid} ({process.name})"
                output.message(f"{prefix} {name} ignored SIGTERM; --force sends SIGKILL")
            for process in report.spared:
                name = f"process {process.pid} ({process.name})"
                output.message(f"{prefix} {name} is left: it is a parent of this command")
            for file in report.left:
                command = _removal_command(result.node, file.path) if file.doubtful else ""
                output.message(f"{prefix} {file.path} is left: {file.why}{command}")
        _list_unattributed(result)
    if any(result.unattributed for result in results):
        output.message("HINT: if a process listed above belongs to a job, end it yourself: kill PID on its node")
    if unreached := {result.node for result in results if result.error}:
        jobs = [target.run.job_id for target in targets if unreached & set(target.nodes)]
        words = " ".join(map(str, jobs)) if len(jobs) <= MAX_NAMED_JOBS else "--all"
        output.message(f"HINT: when these nodes can be reached again: hpcrun cleanup {words}")
    if as_json:
        nodes = [
            {
                "node": result.node,
                "error": result.error or None,
                "unclaimed": [asdict(process) for process in result.unattributed],
                "jobs": [
                    {"job_id": ids[run_dir], "run_dir": run_dir, **asdict(report)}
                    for run_dir, report in result.jobs.items()
                ],
            }
            for result in results
        ]
        output.value(
            {"clean": not has_failed, "hostfiles_removed": list(hostfiles) if is_cleaned else [], "nodes": nodes}
        )
    else:
        _print_table(results, hostfiles, is_cleaned=is_cleaned)
    raise typer.Exit(int(has_failed))


def _list_unattributed(result: NodeResult) -> None:
    """Print processes that may belong to a job; the user has to end them."""
    if not result.unattributed:
        return
    process_count = "1 process" if len(result.unattributed) == 1 else f"{len(result.unattributed)} processes"
    output.message(
        f"{result.node}: not ended: {process_count} of yours that started during the job may belong to it, "
        "but environment, cgroup and parents name no job"
    )
    for process in result.unattributed[:MAX_LISTED_PROCESSES]:
        command = process.command[:MAX_COMMAND_CHARACTERS]
        output.message(f"{result.node}: process {process.pid}, {process.seconds} s old: {command}")
    if len(result.unattributed) > MAX_LISTED_PROCESSES:
        output.message(f"{result.node}: and {len(result.unattributed) - MAX_LISTED_PROCESSES} more; --json lists all")


def _run_node_cleanups(node_cleanups: Sequence[NodeCleanup]) -> list[NodeResult]:
    """Clean up the nodes, and print a message if they do not answer soon."""
    from hpcrun.cleanup.node_cleanups import run_node_cleanups

    message = f"waiting for {pluralize(len(node_cleanups), 'node')}: Slurm may run its Prolog there first"
    timer = threading.Timer(WAIT_MESSAGE_SECONDS, output.message, [message])
    if any(transport.uses_slurm for node_cleanup in node_cleanups for transport in node_cleanup.transports):
        timer.start()
    try:
        return run_node_cleanups(node_cleanups)
    finally:
        timer.cancel()


def _removal_command(node: str, path: str) -> str:
    from hpcrun.cleanup.selection import is_local_host

    command_line = shlex.join(["rm", "-r", "--", path])
    return f"; to remove it: {command_line if is_local_host(node) else shlex.join(['ssh', node, command_line])}"


def _print_table(results: Sequence[NodeResult], hostfiles: Sequence[str], *, is_cleaned: bool) -> None:
    rows: list[list[object]] = []
    for result in results:
        reports = list(result.jobs.values())
        survivor_count = sum(len(report.survivors) for report in reports)
        processes = sum(len(report.processes) for report in reports)
        files = sum(len(report.removed if is_cleaned else report.files) for report in reports)
        leftover_count = sum(len(report.left) for report in reports) + (survivor_count if is_cleaned else 0)
        if result.error:
            rows.append([result.node, "", "", "not reached"])
        elif processes or files or leftover_count:
            rows.append(
                [result.node, max(processes - survivor_count, 0) if is_cleaned else processes, files, leftover_count]
            )
    if rows:
        headings = ("processes ended", "files removed", "left") if is_cleaned else ("processes", "files", "in doubt")
        output.table(("node", *headings), rows)
    if hostfiles:
        output.message(f"hostfiles{' removed' * is_cleaned}: {len(hostfiles)}")
    if not rows and not hostfiles:
        has_unattributed = any(result.unattributed for result in results)
        message = (
            "nothing that certainly belongs to a job is left" if has_unattributed else "there is nothing to clean up"
        )
        output.message(f"{message} on {pluralize(len(results), 'node')}" if results else message)
