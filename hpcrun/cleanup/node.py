"""Cleans one node: finds and ends the processes of jobs, removes their files, and reports it.

Compute nodes run this file, with any Python from 3.8: it imports only the standard library.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cleanup.job_identity import JobIdentity, find_processes, find_unattributed
from hpcrun.cleanup.leftover_files import TEMPORARY_FOLDERS, find_leftovers
from hpcrun.removal import remove_leftover
from hpcrun.schedulers import processes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hpcrun.removal import Leftover
    from hpcrun.schedulers.processes import Process

KILL_SECONDS = 5.0
POLL_SECONDS = 0.05
REPLY_LINE_LENGTH = 700


def own_processes() -> dict[str, Any]:
    """Return the processes of this command on this host, which cleanup must not end.

    A shell that a job started has the job's environment, and so has this command if it is typed there: its parents and
    the processes of its terminal's session are left alone. Start times and names identify processes also in containers
    on this host, which have their own pids.
    """
    mine = processes.user_processes()
    own = set(processes.ancestors(os.getpid()))
    session = os.getsid(0)
    pids = own | {pid for pid, process in mine.items() if process.session == session}
    return {"boot": _boot_id(), "processes": [[mine[pid].start, mine[pid].name] for pid in sorted(pids & set(mine))]}


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def clean_node(
    jobs: Sequence[JobIdentity],
    *,
    dry_run: bool,
    force: bool,
    grace: float,
    caller: dict[str, Any],
    folders: Collection[str],
) -> dict[str, Any]:
    """Clean this host of what jobs left.

    Args:
        jobs: The jobs.
        dry_run: Only report what is found; otherwise end the processes and remove the files.
        force: Send SIGKILL to processes that still run after the grace period.
        grace: The grace period after SIGTERM, in seconds.
        caller: The result of `own_processes` on the host where the command was typed.
        folders: Folders to search in addition to `TEMPORARY_FOLDERS`.

    Returns:
        ``unattributed``: processes that may belong to a job, ``{pid, name, command, seconds}``. ``jobs``: for each job
        the ``processes`` that were found and the ``survivors``, both ``{pid, name}``; ``spared`` processes of the
        caller; ``files`` that were found and ``removed``; ``left`` files, ``{path, why, doubtful}``.
    """
    mine = processes.user_processes()
    spared = _spared_pids(caller, mine)
    running = {job: find_processes(job, mine, spared) for job in jobs}
    files = {}
    for job, theirs in running.items():
        pids = {process.pid for process in theirs}
        others = [process for pid, process in mine.items() if pid not in pids]
        files[job] = find_leftovers(job, theirs, others, [*TEMPORARY_FOLDERS, *map(os.path.expandvars, folders)])
    left = running if dry_run else _end_processes(running, spared, grace, force=force)
    attributed = spared | {process.pid for theirs in [*running.values(), *left.values()] for process in theirs}
    reports = [
        {
            "processes": [_pid_and_name(process) for process in running[job]],
            "survivors": [_pid_and_name(process) for process in left[job]],
            "spared": [_pid_and_name(mine[pid]) for pid in sorted(spared & set(mine)) if job.owns_process(mine[pid])],
            **_handle_files(files[job], dry_run=dry_run, alive=bool(left[job])),
        }
        for job in jobs
    ]
    unattributed = find_unattributed(jobs, processes.user_processes(), attributed)
    return {"jobs": reports, "unattributed": [_describe_process(process) for process in unattributed]}


def _pid_and_name(process: Process) -> dict[str, Any]:
    return {"pid": process.pid, "name": process.name}


def _describe_process(process: Process) -> dict[str, Any]:
    command = processes.command_line(process.pid) or process.name
    return {**_pid_and_name(process), "command": command, "seconds": max(0, int(time.time() - process.start_seconds))}


def _spared_pids(caller: dict[str, Any], mine: dict[int, Process]) -> set[int]:
    spared = set(processes.ancestors(os.getpid()))
    if caller["boot"] == _boot_id():
        own = caller["processes"]
        spared |= {pid for pid, process in mine.items() if [process.start, process.name] in own}
    return spared


def _end_processes(
    found: dict[JobIdentity, list[Process]], spared: set[int], grace: float, *, force: bool
) -> dict[JobIdentity, list[Process]]:
    """End processes, including those that start meanwhile, and return those that still run."""
    known = {job: {process.pid: process for process in theirs} for job, theirs in found.items()}
    signalled: set[tuple[int, int]] = set()

    def find_running() -> dict[JobIdentity, list[Process]]:
        mine = processes.user_processes()
        for job, theirs in known.items():
            # a process whose parent has ended may no longer be attributable to its job
            alive = {pid: one for pid, one in theirs.items() if pid in mine and mine[pid].start == one.start}
            known[job] = {**alive, **{process.pid: process for process in find_processes(job, mine, spared)}}
        return {job: list(theirs.values()) for job, theirs in known.items()}

    def signal_until_gone(seconds: float, *signals: signal.Signals, signal_repeatedly: bool) -> None:
        deadline = time.monotonic() + seconds
        while remaining := [process for theirs in find_running().values() for process in theirs]:
            for process in remaining:
                key = (process.pid, process.start)
                for number in signals if signal_repeatedly or key not in signalled else ():
                    processes.signal_process(process, number)
                signalled.add(key)
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)

    # a stopped process handles SIGTERM only after SIGCONT
    signal_until_gone(grace, signal.SIGTERM, signal.SIGCONT, signal_repeatedly=False)
    if force:
        signal_until_gone(KILL_SECONDS, signal.SIGKILL, signal_repeatedly=True)
    return find_running()


def _handle_files(leftovers: list[Leftover], *, dry_run: bool, alive: bool) -> dict[str, Any]:
    """Remove the files of a job, except in a dry run, and return a report of them."""
    removed, left = [], []
    for leftover in leftovers:
        why = leftover.doubt or ("processes of the job still run" if alive else "")
        if not (dry_run or why):
            why = remove_leftover(leftover)
            removed += [] if why else [leftover.path]
        if why and (not dry_run or leftover.doubt):
            left.append({"path": leftover.path, "why": why, "doubtful": bool(leftover.doubt)})
    return {"files": [leftover.path for leftover in leftovers if not leftover.doubt], "removed": removed, "left": left}


def main(request: dict[str, Any]) -> None:
    """Execute a request and print the reply: one JSON line, or short lines with the node's name if it is one of many.

    Slurm interleaves the lines of several nodes where they are longer than its buffers.
    """
    jobs = [
        JobIdentity(**{
            **job, "other_job_ids": tuple(job["other_job_ids"]), "run_dir_aliases": tuple(job["run_dir_aliases"]),
        })
        for job in request.pop("jobs")
    ]  # fmt: skip
    nodes = request.pop("nodes", None)
    if nodes is None:
        print(json.dumps(clean_node(jobs, **request)), flush=True)
        return
    name = os.environ["SLURMD_NODENAME"]
    own = nodes[name]
    request["folders"] = own["folders"]
    reply = json.dumps(clean_node([jobs[index] for index in own["jobs"]], **request))
    text = base64.b64encode(reply.encode()).decode()
    pieces = [text[start : start + REPLY_LINE_LENGTH] for start in range(0, len(text), REPLY_LINE_LENGTH)]
    for number, piece in enumerate(pieces):
        print("hpcrun-cleanup", name, number, len(pieces), piece, flush=True)
